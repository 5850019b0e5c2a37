"""The methods on offer: this project's, and those that installed packages register.

A method is a class with the face of `analysis.methods.base.Localizer`. A package offers one as an
entry point of the group ``canary.methods``, its name leading to the class.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from analysis.methods.base import Localizer
from analysis.methods.canary.mle import CanaryMle
from analysis.methods.canary.multistage import Canary
from analysis.methods.detector import Detector
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer, NetBouncerStage
from analysis.methods.netscope import NetScope
from analysis.methods.sherlock import Sherlock
from analysis.methods.vigil.set_cover import BinaryProgram, IntegerProgram, MaxCoverage
from analysis.methods.vigil.vigil import Vigil

__all__ = [
    "GROUP",
    "METHODS",
    "ON_REQUEST",
    "find_methods",
    "make_method",
    "method_names",
]

GROUP = "canary.methods"

METHODS: dict[str, Callable[[], Localizer]] = {
    "canary": Canary,
    "canary-mle": CanaryMle,
    "netbouncer": NetBouncer,
    "netbouncer-stage": NetBouncerStage,
    "flock": Flock,
    "007": Vigil,
    "detector": Detector,
    "netscope": NetScope,
}
"""Name to constructor, in the order of the comparison tables; every scenario runs these."""

ON_REQUEST: dict[str, Callable[[], Localizer]] = {
    "007-binary": BinaryProgram,
    "007-integer": IntegerProgram,
    "max-coverage": MaxCoverage,
    "sherlock": Sherlock,
}
"""What a paper compares its method with, or what may take long: run where it is named."""

ALIASES = {"vigil": "007"}


def method_names() -> list[str]:
    """All methods: this project's, then registered ones by name. None of these is loaded yet."""
    return [*METHODS, *ON_REQUEST, *sorted(_registered())]


def find_methods(names: str) -> list[str]:
    """The methods of a comma list such as ``flock,vigil``; each once, in that order.

    ``all`` are all but those on request.

    Raises:
        ValueError: A name is unknown.
    """
    known = method_names()
    if names.strip() == "all":
        return [name for name in known if name not in ON_REQUEST]
    found = [name.strip() for name in names.split(",")]
    found = [ALIASES.get(name, name) for name in found]
    for name in found:
        if name not in known:
            raise ValueError(f"no method {name!r}: known are {', '.join(known)}, or all")
    return list(dict.fromkeys(found))


def make_method(name: str) -> Localizer:
    """A method with its default parameters.

    Raises:
        ValueError: There is none of that name, or a registered one does not load (one line).
    """
    own = METHODS | ON_REQUEST
    if name in own:
        return own[name]()
    point = _registered().get(name)
    if point is None:
        raise ValueError(f"no method {name!r}: known are {', '.join(method_names())}")
    package = point.dist.name if point.dist else "a package"
    try:
        method = point.load()()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"method {name!r} of {package} does not load: {reason}") from None
    lacking = [face for face in _FACE if not callable(getattr(method, face, None))]
    if lacking:
        raise ValueError(f"method {name!r} of {package} is none: it has no {lacking[0]}()")
    return method


_FACE = ("localize", "telemetry_bytes", "probe_packets")


def _registered() -> dict[str, EntryPoint]:
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name in found.keys() & (METHODS.keys() | ON_REQUEST.keys() | ALIASES.keys()):
        raise ValueError(f"the entry point {found[name].value} takes the name of {name}: rename it")
    return found
