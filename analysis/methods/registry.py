"""The methods on offer: this project's, and those that installed packages register.

A method is a class with the face of `analysis.methods.base.Localizer`. A package offers one as an
entry point of the group ``canary.methods``, its name leading to the class; a user names a file with
one (`analysis.methods.method_file`), which is known by its name where `Parameters.files` has it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from analysis.methods.any_loss import AnyLoss
from analysis.methods.base import Localizer, Method, split, variant
from analysis.methods.canary import Canary
from analysis.methods.detector import Detector
from analysis.methods.flock.flock import Flock
from analysis.methods.kdd14 import Kdd14
from analysis.methods.method_file import FACE, SUFFIX, constructor_in, make_from_file
from analysis.methods.mle.mle import CanaryMle, Mle
from analysis.methods.netbouncer import NetBouncer, NetBouncerStage
from analysis.methods.netscope import NetScope
from analysis.methods.parameters import (
    DEFAULTS,
    NamedMethod,
    Parameters,
    in_force,
    in_words,
    own_values,
    read_names,
    values,
)
from analysis.methods.sherlock import Sherlock
from analysis.methods.vigil.set_cover import BinaryProgram, IntegerProgram, MaxCoverage
from analysis.methods.vigil.vigil import Vigil
from testbed.errors import UserError
from testbed.fabric.names import nearest

GROUP = "canary.methods"

METHODS: dict[str, Callable[..., Localizer]] = {
    "canary": Canary,
    "netbouncer": NetBouncer,
    "netbouncer-stage": NetBouncerStage,
    "flock": Flock,
    "007": Vigil,
    "detector": Detector,
    "netscope": NetScope,
    "canary+acquit": variant(Canary, "acquit", lossy_share=0.25),
    "flock+refine+conditional+severe": variant(
        Flock, "refine", "conditional", "severe", p_bad=0.003, link_prior=-7.0, device_factor=5.0
    ),
    "canary-mle": CanaryMle,
    "mle": Mle,
}
"""Name to constructor, in the order of the comparison tables; every scenario runs these. Published
methods first, then variants and methods of this project; of variants those that do better than the
published method where it does badly."""

ON_REQUEST: dict[str, Callable[..., Localizer]] = {
    "007-binary": BinaryProgram,
    "007-integer": IntegerProgram,
    "max-coverage": MaxCoverage,
    "sherlock": Sherlock,
    "kdd14": Kdd14,
    "any-loss": AnyLoss,
}
"""What a paper compares its method with, or what may take long: run where it is named."""

ALIASES = {"vigil": "007"}

Bench = Literal["published", "project", "reference", "other"]
"""The part of a table that a method stands in."""

REFERENCE = AnyLoss.base
"""The trivial method, beside which every comparison puts the others."""


def method_names() -> list[str]:
    """All methods: this project's, then registered ones by name. None of these is loaded yet."""
    return [*METHODS, *ON_REQUEST, *sorted(_registered())]


@dataclass(frozen=True)
class BuiltMethod:
    """A method that somebody named: read once, built once, with what tables say of it.

    Attributes:
        name: As the tables call it: in the grammar, with the parameters that were named.
        method: The method itself.
        parameters: All that it has, in the grammar.
        origin: Where these come from, in words.
        bench: The part of a table that it stands in.
    """

    name: str
    method: Localizer
    parameters: str
    origin: str
    bench: Bench


def find_methods(text: str, parameters: Parameters = DEFAULTS) -> list[BuiltMethod]:
    """The methods of a list such as ``flock:p_bad=0.01,vigil``, built; each once, in that order.

    The grammar is that of `analysis.methods.parameters`. ``all`` are all but those on request.

    Args:
        parameters: What the methods are made with where their names leave it open; its ``files``
            are the method files that may be named.

    Raises:
        ValueError: A name, a parameter or a value is unknown, or does not fit the others; a
            registered method does not load (one line).
    """
    built = [_build(named, parameters) for named in _named(text, parameters)]
    return list({each.name: each for each in built}.values())


def build(text: str, parameters: Parameters = DEFAULTS) -> BuiltMethod:
    """One method as named in the grammar, with ``parameters`` for what its name leaves open.

    Raises:
        ValueError: There is none of that name, a parameter or a value is wrong, or a registered
            method does not load (one line).
    """
    return _build(_one(text, parameters), parameters)


def make_method(text: str, parameters: Parameters = DEFAULTS) -> Localizer:
    """The method itself, see `build`."""
    return build(text, parameters).method


def _named(text: str, parameters: Parameters) -> list[NamedMethod]:
    found: list[NamedMethod] = []
    for named in read_names(text):
        if named == NamedMethod("all", ()):
            every = (name for name in method_names() if name not in ON_REQUEST)
            found += [NamedMethod(name, ()) for name in every]
        else:
            found.append(_known(named, parameters))
    return found


def _build(named: NamedMethod, parameters: Parameters) -> BuiltMethod:
    constructor = constructor_of(named.name, parameters)
    own = own_values(named, constructor)
    given = values(named.name, own, constructor, parameters)
    method = _constructed(named.name, constructor, given, parameters)
    said = re.sub(r"^kinds=([^,]*)", r"\1", in_words(own))
    return BuiltMethod(
        name=f"{named.name}:{said}" if own else named.name,
        method=method,
        parameters=in_force(method, constructor, given),
        origin=parameters.origin(named, constructor),
        bench=_bench(named.name, method, parameters),
    )


def _constructed(
    name: str,
    constructor: Callable[..., Localizer],
    given: Mapping[str, Any],
    parameters: Parameters,
) -> Localizer:
    if name in parameters.files:
        return make_from_file(parameters.files[name], constructor, given)
    if split(name)[0] in METHODS | ON_REQUEST:
        try:
            method = constructor(**given)
        except ValueError as error:
            if not given:
                raise
            raise UserError(f"{name}:{in_words(given)}: {error}") from None
        if method.name != name:
            raise UserError(f"{name}:{in_words(given)}: that is {method.name}: give it this name")
        return method
    try:
        method = constructor(**given)
    except Exception as error:
        raise _broken(name, error) from None
    lacking = [face for face in FACE if not callable(getattr(method, face, None))]
    if lacking:
        raise UserError(f"method {name!r} of {_package(name)} is none: it has no {lacking[0]}()")
    return method


def _bench(name: str, method: Localizer, parameters: Parameters) -> Bench:
    """The bench of a method, so that tables keep papers and this project apart.

    ``published`` is the algorithm of a paper, and ``project`` a method of this project's own or a
    variant of a published one, ``NAME+CHANGE``. ``reference`` is no proposal. ``other`` is a method
    of another package, or of a file that the user named.
    """
    if name in parameters.files or name in _registered():
        return "other"
    if name == REFERENCE:
        return "reference"
    return "published" if isinstance(method, Method) and method.published else "project"


def check_parameters(parameters: Parameters) -> None:
    """See that all methods of a set can be made with it; those that are not there are refused.

    Raises:
        ValueError: A method, a parameter or a value is wrong (one line).
    """
    for name in parameters.of:
        build(name, parameters)


def _one(text: str, parameters: Parameters) -> NamedMethod:
    named, *more = read_names(text)
    if more:
        raise UserError(f"{text} names {len(more) + 1} methods: name one")
    return _known(named, parameters)


def _known(named: NamedMethod, parameters: Parameters) -> NamedMethod:
    """By its own name, if there is one so called; a variant with its changes in their order."""
    if named.name.endswith(SUFFIX):
        if (file := Path(named.name).name) in parameters.files:
            return NamedMethod(file, named.words)
        raise UserError(f"{named.name}: a method file is run only where METHODS= names it")
    name, known = ALIASES.get(named.name, named.name), method_names()
    if name in known:
        return NamedMethod(name, named.words)
    base, changes = split(name)
    base = ALIASES.get(base, base)
    if changes and base in known:
        try:
            return NamedMethod(variant(constructor_of(base), *changes)().name, named.words)
        except ValueError as error:
            raise UserError(f"{named.name}: {error}") from None
    guess = nearest(name, known) if name else "a name is missing"
    guess = "" if guess.startswith("choose") else f"{guess} "
    raise UserError(f"no method {name!r}: {guess}known are {', '.join(known)}, or all")


def constructor_of(name: str, parameters: Parameters = DEFAULTS) -> Callable[..., Localizer]:
    """Return what makes a method, by its name, with its changes behind it.

    Raises:
        ValueError: A registered method does not load (one line).
    """
    if name in parameters.files:
        return constructor_in(parameters.files[name])
    own = METHODS | ON_REQUEST
    if name in own:
        return own[name]
    base, changes = split(name)
    if changes and base in method_names():
        return variant(constructor_of(base), *changes)
    try:
        return _registered()[name].load()
    except Exception as error:
        raise _broken(name, error) from None


def _broken(name: str, error: Exception) -> UserError:
    reason = f"{type(error).__name__}: {error}"
    return UserError(f"method {name!r} of {_package(name)} does not load: {reason}")


def _package(name: str) -> str:
    point = _registered()[name]
    return point.dist.name if point.dist else "a package"


def _registered() -> dict[str, EntryPoint]:
    return _registered_on(tuple(sys.path))


@cache  # a run asks some fifty times, and each time all that is installed would be read
def _registered_on(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    del path
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name in found.keys() & (METHODS.keys() | ON_REQUEST.keys() | ALIASES.keys()):
        raise UserError(f"the entry point {found[name].value} takes the name of {name}: rename it")
    return found
