"""What a calibration tries: for every method with parameters, the values of each that matters.

The first value of each parameter is where the search begins, and what stays where nothing is
clearly better: the paper's or, of what the papers leave open, this project's. It does not depend on
the constructors' defaults, so a calibration whose outcome became the default ends where it did
before.
Left out are what says what a method reads (``inputs``, ``kinds``), what the user says of a fault
(``fault_rate``, ``link_threshold``), which of several algorithms it is (``groups``, and the changes
of `analysis.methods.changes`, but for the numbers of those that a variant has on), and what only
trades time for accuracy (``tolerance``, ``threads``); and Canary's lambda, which is printed as 1
(table III). Variants that are not here have the grid of their method. So `mle` and `canary-mle`
have nothing to calibrate: their rates are estimated from the run, and their penalty follows from
the size of fabric and telemetry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Grid = Mapping[str, Sequence[Any]]

GRIDS: Mapping[str, Grid] = {
    "canary": {
        "lossy_share": (0.25, 0.0, 0.1, 0.4, 0.5, 0.6, 0.75, 1.0),
    },
    "canary+acquit": {
        "lossy_share": (0.25, 0.0, 0.1, 0.4, 0.5, 0.6, 0.75, 1.0),
        "own_share": (0.5, 0.25, 0.75, 1.0),
    },
    "netbouncer": {
        "penalty": (1.0, 0.01, 0.1, 0.3, 0.5, 2.0, 4.0, 8.0),
    },
    "netbouncer-stage": {
        "penalty": (1.0, 0.01, 0.1, 0.3, 0.5, 2.0, 4.0, 8.0),
    },
    "flock": {
        "p_bad": (3e-3, 1e-3, 2e-3, 5e-3, 1e-2, 3e-2),
        "p_good": (2e-4, 1e-4, 3e-4, 1e-3),
        "link_prior": (-15.0, -5.0, -7.0, -10.0, -20.0, -35.0),
        "device_factor": (5.0, 2.0, 10.0, 100.0, 1e4, 1e5, 1e6, 1e7),
    },
    "flock+refine+conditional+severe": {
        "p_bad": (3e-3, 1e-3, 2e-3, 5e-3, 1e-2),
        "p_good": (2e-4, 1e-4, 3e-4),
        "link_prior": (-15.0, -5.0, -7.0, -10.0, -20.0),
        "device_factor": (5.0, 2.0, 10.0),
        "severe_p_bad": (0.05, 0.02, 0.1, 0.2),
    },
    "007": {
        "threshold": (0.01, 0.001, 0.0025, 0.005, 0.02, 0.03, 0.04),
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
"""By method or variant, values by parameter."""
