# SPDX-License-Identifier: Apache-2.0
"""The available methods: this project's, and those that installed packages register.

A method is a class with the interface `analysis.methods.base.Localizer`. A package registers one as
an entry point of the group ``canary.methods``, which gives the name and the class. A user may also
name a file with a method (`analysis.methods.method_file`); it is available by its file name where
`Parameters.files` lists it.
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
from analysis.methods.base import Localizer, Method
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
from analysis.methods.per_link_loss import PerLinkLoss
from analysis.methods.sherlock import Sherlock
from analysis.methods.spray_check import SprayCheck
from analysis.methods.variants import split, variant
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
    "canary+acquit": variant(Canary, "acquit"),
    "flock+links": variant(Flock, "links"),
    "flock+refine+conditional+severe": variant(
        Flock,
        "refine",
        "conditional",
        "severe",
        p_bad=0.01,
        p_good=1e-4,
        link_prior=-5.0,
    ),
    "canary-mle": CanaryMle,
    "mle": Mle,
}
"""Constructors by name, in the order of the comparison tables; every scenario runs these. Published
methods come first, then variants and methods of this project. The variants are those that do better
than the published method in settings where it does badly."""

ON_REQUEST: dict[str, Callable[..., Localizer]] = {
    "007-binary": BinaryProgram,
    "007-integer": IntegerProgram,
    "max-coverage": MaxCoverage,
    "sherlock": Sherlock,
    "kdd14": Kdd14,
    "any-loss": AnyLoss,
    "per-link-loss": PerLinkLoss,
    "spray-check": SprayCheck,
}
"""Methods that run only where a user names them: those that a paper compares its own with, and
those that may take long."""

ALIASES = {"vigil": "007"}

Bench = Literal["published", "project", "reference", "other"]
"""The block of a table that a method is listed in, see `_bench`."""

REFERENCE = AnyLoss.base
"""The trivial method, with which every comparison compares the others."""


def method_names() -> list[str]:
    """Return the names of all methods: this project's, then the registered ones in alphabetical
    order, without importing these."""
    return [*METHODS, *ON_REQUEST, *sorted(_registered())]


_LONGEST_NAME = 40  # of a class's own name in a table


@dataclass(frozen=True)
class BuiltMethod:
    """A method built from its name, with the texts that tables show of it.

    Attributes:
        name: Its name in tables: in the grammar, with the parameters that the user named.
        method: The method.
        parameters: The values of all its parameters, in the grammar.
        origin: Where these values come from, as text.
        bench: The block of a table that it is listed in.
    """

    name: str
    method: Localizer
    parameters: str
    origin: str
    bench: Bench

    @property
    def own_name(self) -> str:
        """Return the name that a class of a file or of another package gives itself; "" if tables
        have the method by this name."""
        own = str(self.method.name)
        if self.bench != "other" or own == read_names(self.name)[0].name:
            return ""
        return own if len(own) <= _LONGEST_NAME else f"{own[: _LONGEST_NAME - 3]}..."


def find_methods(text: str, parameters: Parameters = DEFAULTS) -> list[BuiltMethod]:
    """Build the methods of a list such as ``flock:p_bad=0.01,vigil``; return each once, in order.

    `analysis.methods.parameters` describes the grammar. ``all`` stands for all methods but those of
    `ON_REQUEST`.

    Args:
        text: The list of methods.
        parameters: Values for parameters that the names leave open; its ``files`` are the method
            files that may be named.

    Raises:
        ValueError: A name, a parameter or a value is unknown or does not fit the others, or a
            registered method cannot be loaded (one line).
    """
    built = [_build(named, parameters) for named in _named(text, parameters)]
    return list({each.name: each for each in built}.values())


def build(text: str, parameters: Parameters = DEFAULTS) -> BuiltMethod:
    """Return one method, built from its name in the grammar; ``parameters`` has the values that the
    name leaves open.

    Raises:
        ValueError: There is no such method, a parameter or a value is wrong, or a registered method
            cannot be loaded (one line).
    """
    return _build(_one(text, parameters), parameters)


def make_method(text: str, parameters: Parameters = DEFAULTS) -> Localizer:
    """Build one method as `build` does, and return the method alone."""
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
    arguments = values(named.name, own, constructor, parameters)
    method = _constructed(named.name, constructor, arguments, parameters)
    words = re.sub(r"^kinds=([^,]*)", r"\1", in_words(own))
    return BuiltMethod(
        name=f"{named.name}:{words}" if own else named.name,
        method=method,
        parameters=in_force(method, constructor, arguments),
        origin=parameters.origin(named, constructor),
        bench=_bench(named.name, method, parameters),
    )


def _constructed(
    name: str,
    constructor: Callable[..., Localizer],
    arguments: Mapping[str, Any],
    parameters: Parameters,
) -> Localizer:
    if name in parameters.files:
        return make_from_file(parameters.files[name], constructor, arguments)
    if split(name)[0] in METHODS | ON_REQUEST:
        try:
            method = constructor(**arguments)
        except ValueError as error:
            if not arguments:
                raise
            raise UserError(f"{name}:{in_words(arguments)}: {error}") from None
        if method.name != name:
            raise UserError(f"{name}:{in_words(arguments)}: use its name {method.name}")
        return method
    try:
        method = constructor(**arguments)
    except Exception as error:
        raise _broken(name, error) from None
    lacking = [face for face in FACE if not callable(getattr(method, face, None))]
    if lacking:
        raise UserError(
            f"method {name!r} of {_package(name)} cannot be used: it has no {lacking[0]}()"
        )
    return method


def _bench(name: str, method: Localizer, parameters: Parameters) -> Bench:
    """Return the block of a table that a method is listed in.

    ``published`` is the algorithm of a paper; ``project`` is a method of this project or a variant
    of a published one, ``NAME+CHANGE``; ``reference`` is the trivial method; ``other`` is a method
    of another package or of a file that the user named.
    """
    if name in parameters.files or name in _registered():
        return "other"
    if name == REFERENCE:
        return "reference"
    return "published" if isinstance(method, Method) and method.published else "project"


def check_parameters(parameters: Parameters) -> None:
    """Check a parameter set by building every method that it has values for.

    Raises:
        ValueError: A method is unknown, or a parameter or a value is wrong (one line).
    """
    for name in parameters.by_method:
        build(name, parameters)


def _one(text: str, parameters: Parameters) -> NamedMethod:
    named, *more = read_names(text)
    if more:
        raise UserError(f"{text} names {len(more) + 1} methods: name one")
    return _known(named, parameters)


def _known(named: NamedMethod, parameters: Parameters) -> NamedMethod:
    """Return a named method with its canonical name: aliases resolved, and a variant's changes in
    the order of their declaration.

    Raises:
        UserError: There is no such method or change (one line).
    """
    if named.name.endswith(SUFFIX):
        if (file := Path(named.name).name) in parameters.files:
            return NamedMethod(file, named.words)
        raise UserError(f"{named.name}: a method file runs only if METHODS= names it")
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
    raise UserError(f"there is no method {name!r}: {guess}use {', '.join(known)}, or all")


def constructor_of(name: str, parameters: Parameters = DEFAULTS) -> Callable[..., Localizer]:
    """Return the constructor of a method, by its name with its changes.

    Raises:
        ValueError: A registered method cannot be loaded (one line).
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
    return UserError(f"method {name!r} of {_package(name)} cannot be loaded: {reason}")


def _package(name: str) -> str:
    point = _registered()[name]
    return point.dist.name if point.dist else "a package"


def _registered() -> dict[str, EntryPoint]:
    return _registered_on(tuple(sys.path))


@cache  # a run asks some fifty times, and each call would read the metadata of all packages
def _registered_on(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    del path
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name in found.keys() & (METHODS.keys() | ON_REQUEST.keys() | ALIASES.keys()):
        raise UserError(f"the entry point {found[name].value} has the name of {name}: rename it")
    return found
