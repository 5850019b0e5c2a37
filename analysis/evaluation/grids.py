"""What a calibration tries: for every method with parameters, the values of each that matters.

The first value of each parameter is where the search begins; it does not depend on the
constructors' defaults, so a calibration whose outcome became the default ends where it did before.
Left out are what says what a method reads (``inputs``, ``kinds``), what the user says of a fault
(``fault_rate``), and what only trades time for accuracy (``tolerance``, ``refine``, ``threads``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["GRIDS", "Grid"]

Grid = Mapping[str, Sequence[Any]]

_FIVE = (1.0, 0.2, 0.1, 0.05, 0.01, 0.001)

GRIDS: Mapping[str, Grid] = {
    "canary": {
        "groups": (_FIVE, (1.0, 0.1, 0.01, 0.001), (*_FIVE, 0.0001)),
        "penalty": (1.0, 0.1, 0.3, 0.5, 2.0),
        "lossy_share": (0.25, 0.0, 0.5, 0.75),
        "noise_floor": (1e-4, 1e-5, 3e-4, 5e-4, 1e-3, 2e-3),
    },
    "canary-mle": {
        "penalty": (None, 8.0, 12.0, 16.0, 24.0, 32.0),
    },
    "netbouncer": {
        "penalty": (None, 1.0, 0.01, 0.1, 0.3, 0.5, 2.0, 4.0, 8.0),
        "link_threshold": (0.999, 0.99, 0.995, 0.997, 0.998, 0.9985, 0.9993, 0.9997),
        "lucky_share": (0.001, 0.0, 0.01, 0.05),
    },
    "netbouncer-stage": {
        "penalty": (1.0, 0.01, 0.1, 0.3, 0.5, 2.0, 4.0, 8.0),
        "link_threshold": (0.999, 0.99, 0.995, 0.997, 0.998, 0.9985, 0.9993, 0.9997),
        "mapped": (True, False),
    },
    "flock": {
        "p_bad": (3e-3, 1e-3, 2e-3, 5e-3, 1e-2),
        "p_good": (2e-4, 1e-4, 3e-4, 4e-4),
        "passive_p_bad": (None, 2e-3, 6e-3, 2e-2, 5e-2),
        "passive_p_good": (None, 1e-5, 1e-4, 3e-4),
        "link_prior": (None, -5.0, -10.0, -15.0),
        "fabric_prior": (-2.0, 0.0, -5.0, -10.0),
        "device_factor": (5.0, 2.0, 10.0),
    },
    "007": {
        "threshold": (None, 0.0025, 0.005, 0.01, 0.02, 0.04),
        "relative_threshold": (1.0, 0.25, 0.5, 1.5, 2.0, 3.0, 4.0),
        "chance": (0.5, 0.05, 0.1, 0.2, 1.0, 2.0, float("inf")),
        "false_alarm": (0.01, 1e-4, 1e-3, 0.1, 1.0, float("inf")),
    },
    "detector": {
        "hit_ratio": (0.6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.8, 0.9),
        "noise": (1e-5, 1e-6, 5e-5, 1e-4, 2e-4, 5e-4),
        "significance": (0.01, 1e-5, 1e-4, 1e-3, 0.05),
    },
    "netscope": {
        "omega": (1.0, 0.03, 0.1, 0.3, 0.5, 2.0, 4.0, 10.0),
        "link_threshold": (0.999, 0.98, 0.99, 0.993, 0.995, 0.997, 0.998, 0.9985),
    },
}
"""By method, values by parameter."""
