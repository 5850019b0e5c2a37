# SPDX-License-Identifier: Apache-2.0
"""A single run, from its settings to its summary: set-up, epoch loop, record and diagnosis."""
