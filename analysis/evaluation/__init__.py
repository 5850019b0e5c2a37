"""How well methods did: scores, calibration, comparisons, rankings and reports."""
