"""The methods on offer. A new one is a class with the face of `analysis.diagnosis.Localizer`."""

from __future__ import annotations

from collections.abc import Callable

from analysis.canary.mle import CanaryMle
from analysis.canary.multistage import Canary
from analysis.diagnosis import Localizer
from analysis.flock import Flock
from analysis.netbouncer import NetBouncer, NetBouncerStage
from analysis.vigil import Vigil

__all__ = ["METHODS"]

METHODS: dict[str, Callable[[], Localizer]] = {
    "canary": Canary,
    "canary-mle": CanaryMle,
    "netbouncer": NetBouncer,
    "netbouncer-stage": NetBouncerStage,
    "flock": Flock,
    "007": Vigil,
}
"""Name to constructor, in the order of the comparison tables."""
