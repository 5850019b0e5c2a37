# SPDX-License-Identifier: Apache-2.0
"""The run directory, which records a run's measurements, ground truth and diagnoses."""
