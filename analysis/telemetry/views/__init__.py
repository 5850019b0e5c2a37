# SPDX-License-Identifier: Apache-2.0
"""What methods read of measurements, a module for each kind: it is made of the record of a run."""
