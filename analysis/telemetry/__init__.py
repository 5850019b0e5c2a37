# SPDX-License-Identifier: Apache-2.0
"""What every method reads of a run, and how it is made of the run's record."""
