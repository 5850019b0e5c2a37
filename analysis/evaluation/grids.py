"""What a calibration tries: for every method with parameters, the values of each that matters.

The first value of each parameter is where the search begins, and what stays where nothing is
clearly better: the paper's or, of what the papers leave open, this project's. It does not depend on
the constructors' defaults, so a calibration whose outcome became the default ends where it did
before.
Left out are what says what a method reads (``inputs``, ``kinds``), what the user says of a fault
(``fault_rate``, ``link_threshold``), which of several algorithms it is (``groups``, ``mapped``,
``model``, ``adjust``, ``devices``, ``device_detection``), and what only trades time for accuracy
(``tolerance``, ``refine``, ``threads``). So `mle` and `canary-mle` have nothing to calibrate: their
rates are estimated from the run, and their penalty follows from the size of fabric and telemetry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["GRIDS", "Grid"]

Grid = Mapping[str, Sequence[Any]]

GRIDS: Mapping[str, Grid] = {
    "canary": {
        "penalty": (1.0, 0.1, 0.3, 0.5, 2.0),
        "lossy_share": (0.25, 0.0, 0.5, 0.75),
        "noise_floor": (1e-4, 1e-5, 3e-4, 5e-4, 1e-3, 2e-3, 3e-3),
    },
    "netbouncer": {
        "penalty": (None, 1.0, 0.01, 0.1, 0.3, 0.5, 2.0, 4.0, 8.0),
        "lucky_share": (0.001, 0.0, 0.01, 0.05, 0.1, 0.2),
    },
    "netbouncer-stage": {
        "penalty": (1.0, None, 0.1, 0.3, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0),
    },
    "flock": {
        "p_bad": (3e-3, 1e-3, 2e-3, 4e-3, 6e-3),
        "p_good": (2e-4, 1e-4, 3e-4),
        "passive_p_bad": (5e-3, 3e-3, 4e-3, 6e-3, 8e-3),
        "passive_p_good": (2e-4, 1e-4, 3e-4),
        "severe_p_bad": (0.05, None, 0.02, 0.1, 0.2),
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
        "significance": (0.01, 1e-4, 1e-3, 0.05, 0.1),
    },
    "netscope": {
        "omega": (1.0, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 2.0, 4.0, 10.0),
    },
    "kdd14": {
        "noise": (1e-3, 1e-6, 1e-5, 5e-5, 1e-4, 2e-4, 5e-4, 2e-3),
        "significance": (0.01, 1e-6, 1e-5, 1e-4, 1e-3, 0.05, 0.1),
    },
}
"""By method, values by parameter."""
