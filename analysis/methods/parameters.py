"""How methods and their parameters are said: one grammar wherever a method is named.

    METHODS = METHOD[,METHOD]...
    METHOD  = VARIANT                   or the path of a Python file, as worst.py
            | VARIANT:PARAMETER=VALUE[,PARAMETER=VALUE]...
            | VARIANT:KIND[+KIND]...[,PARAMETER=VALUE]...
    VARIANT = NAME[+CHANGE]...

An item of the comma list that has a ``=`` and no ``:`` continues the method before it, so
``flock:p_bad=0.01,link_prior=-15,007`` is two methods. Parameters are those of the method's
constructor, values are read as the types it declares: ``true`` and ``false``, ``none`` where there
may be none, lists joined by ``+`` (``canary:groups=1+0.1+0.001``). KINDs are short for ``kinds=``,
the kinds of telemetry of a method with such a parameter (``mle:A1+A2+P``). A CHANGE turns on what
this project does otherwise than the method's paper (`analysis.methods.base`).

What a name does not say stands in `Parameters`; what that does not say are the defaults of the
constructor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic.errors import PydanticSchemaGenerationError

from analysis.methods.base import Localizer, split
from analysis.methods.constraints import Probability, converted, declared
from testbed.errors import UserError
from testbed.fabric.names import nearest

FAULT_RATE = 1e-3
"""What a fault is unless the user says otherwise: the least loss rate of a faulty link."""

_JOINED = re.compile(r"(?<![eE])\+")  # 1e+5 is a number
_OF_FAULT_RATE: Mapping[str, Callable[[float], float]] = {
    "fault_rate": lambda rate: rate,
    "link_threshold": lambda rate: 1 - rate,
}
"""Parameters that say what a fault is: the least loss rate, or the most success probability."""


@dataclass(frozen=True)
class NamedMethod:
    """A method as somebody named it: its name, and ``PARAMETER=VALUE`` each."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Parameters:
    """What methods are made with where their names say nothing else.

    Attributes:
        source: ``default``, ``paper``, or the name of a file, see
            `analysis.evaluation.parameter_sets`.
        of: By method, values by parameter. A variant that is not in it has those of its method;
            methods that are not in it have their defaults.
        fault_rate: What the user calls a fault: the loss rate from which on a link is one. Every
            method whose constructor has a parameter for it gets it: ``fault_rate`` as it is,
            ``link_threshold`` as 1 - fault_rate. None: `FAULT_RATE`, but what ``of`` says wins.
        files: Method files that the user named, by their names in tables: ``worst.py``. They are
            run, so nothing but the command line or a program may fill this.
    """

    source: str = "default"
    of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fault_rate: float | None = None
    files: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fault_rate is not None:
            converted(Probability, self.fault_rate, f"FAULT_RATE={self.fault_rate:g}")

    def given(self, name: str) -> Mapping[str, Any]:
        """The values for a method, or for a variant of one."""
        return self.of.get(name) or self.of.get(split(name)[0], {})

    def origin(self, named: NamedMethod, constructor: Callable[..., Localizer]) -> str:
        """Where a method's parameters come from, in words."""
        origins = [self.source if self.given(named.name) else "default"]
        if self.fault_rate is not None and _of_fault(constructor, self.fault_rate):
            origins.append(f"fault rate {self.fault_rate:g}")
        return ", ".join([*origins, *(["as named"] if named.words else [])])


DEFAULTS = Parameters()


def read_names(text: str) -> list[NamedMethod]:
    """The methods of a list in the grammar of this module, unchecked."""
    found: list[tuple[str, list[str]]] = []
    for item in (part.strip() for part in text.split(",")):
        if "=" in item and ":" not in item and found:
            found[-1][1].append(item)
            continue
        name, colon, word = (part.strip() for part in item.partition(":"))
        if colon and "=" not in word:
            word = f"kinds={word}"
        found.append((name, [word] if colon else []))
    return [NamedMethod(name, tuple(words)) for name, words in found]


def values(
    name: str,
    own: Mapping[str, Any],
    constructor: Callable[..., Localizer],
    parameters: Parameters = DEFAULTS,
) -> dict[str, Any]:
    """What a method is constructed with: its ``own`` values, which its name says, else the fault
    rate that the user said, else the set, else `FAULT_RATE`.

    Raises:
        ValueError: There is no such parameter, or it cannot have the value (one line).
    """
    found: dict[str, Any] = dict(_of_fault(constructor, FAULT_RATE))
    for parameter, value in parameters.given(name).items():
        found[parameter] = _value(name, parameter, value, constructor)
    if parameters.fault_rate is not None:
        found |= _of_fault(constructor, parameters.fault_rate)
    return found | dict(own)


def _of_fault(constructor: Callable[..., Localizer], rate: float) -> dict[str, float]:
    """The parameters that say what a fault is, of a method that has any."""
    known = declared(constructor)
    return {name: of(rate) for name, of in _OF_FAULT_RATE.items() if name in known}


def own_values(named: NamedMethod, constructor: Callable[..., Localizer]) -> dict[str, Any]:
    """What a method's name says itself, see `values`."""
    found: dict[str, Any] = {}
    for word in named.words:
        parameter, _, text = (part.strip() for part in word.partition("="))
        if not text:
            raise UserError(f"{named.name}: a value is missing: use {named.name}:PARAMETER=VALUE")
        if parameter in found:
            raise UserError(f"{named.name}: {parameter} is given twice")
        found[parameter] = _value(named.name, parameter, text, constructor)
    return found


def in_words(given: Mapping[str, Any]) -> str:
    """Values in the grammar: ``p_bad=0.003,link_prior=-15.0``."""
    return ",".join(f"{name}={_in_words(value)}" for name, value in given.items())


def in_force(
    method: Localizer, constructor: Callable[..., Localizer], given: Mapping[str, Any]
) -> str:
    """All parameters of a method that was made with ``given``, in the grammar.

    Those that it leaves open are left out.
    """
    found = {}
    for name, (_, default) in declared(constructor).items():
        value = given.get(name, getattr(method, name, default))
        if isinstance(value, str | int | float | list | tuple):
            found[name] = value
    return in_words(found)


def _in_words(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return repr(float(value))  # numpy's, too
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(_in_words(each) for each in value)
    return str(value)


def _value(name: str, parameter: str, given: Any, constructor: Callable[..., Localizer]) -> Any:
    """A value, given as text or as YAML has it, as the type that the constructor declares."""
    known = declared(constructor)
    if parameter not in known:
        if parameter == "kinds":
            raise UserError(f"{name}:{given}: {name} takes no kinds: use {name}:PARAMETER=VALUE")
        there = nearest(parameter, known) if known else "it has none"
        raise UserError(f"{name} has no parameter {parameter}: {there}")
    kind = known[parameter][0]
    text = given if isinstance(given, str) else _in_words(given)
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if text.lower() == "none" and type(None) in kinds:
        return None
    inner = [each for each in kinds if each is not type(None)]
    lists = any(get_origin(each) in (list, tuple, set, frozenset, Sequence) for each in inner)
    lists &= len(inner) == 1 or _JOINED.search(text) is not None
    try:
        value = converted(
            kind, _JOINED.split(text) if lists else text, f"{name}:{parameter}={text}"
        )
    except PydanticSchemaGenerationError:
        raise UserError(f"{name}: {parameter} cannot be said in words") from None
    if isinstance(value, float) and math.isnan(value):
        raise UserError(f"{name}:{parameter}={text}: it should be a number")
    return value
