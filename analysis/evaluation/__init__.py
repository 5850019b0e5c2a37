# SPDX-License-Identifier: Apache-2.0
"""How well methods did: scores, calibration, comparisons, rankings and reports."""
