# SPDX-License-Identifier: Apache-2.0
"""The grammar of methods and their parameters, the same wherever a user names a method.

    METHODS = METHOD[,METHOD]...
    METHOD  = VARIANT                   or the path of a Python file, as worst.py
            | VARIANT:PARAMETER=VALUE[,PARAMETER=VALUE]...
            | VARIANT:KIND[+KIND]...[,PARAMETER=VALUE]...
    VARIANT = NAME[+CHANGE]...

An item of the comma-separated list with a ``=`` and no ``:`` belongs to the method before it, so
``flock:p_bad=0.01,link_prior=-15,007`` names two methods. Parameters are those of the method's
constructor, and values are converted to the types that it declares: ``true`` and ``false``,
``none`` where None is allowed, lists joined by ``+`` (``canary:groups=1+0.1+0.001``). KINDs are
short for ``kinds=``, the kinds of telemetry of a method with such a parameter (``mle:A1+A2+P``). A
CHANGE turns on a departure from the method's paper (`analysis.methods.variants`).

Values that a name does not give come from `Parameters`, and after that from the constructor's
defaults.
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

from analysis.methods.base import Localizer
from analysis.methods.constraints import Probability, converted, declared
from analysis.methods.variants import split
from testbed.errors import UserError
from testbed.fabric.names import nearest

FAULT_RATE = 1e-3
"""The least loss rate of a faulty link, unless the user gives another."""

_JOINED = re.compile(r"(?<![eE])\+")  # 1e+5 is a number
_OF_FAULT_RATE: Mapping[str, Callable[[float], float]] = {
    "fault_rate": lambda rate: rate,
    "link_threshold": lambda rate: 1 - rate,
}
"""The parameters of methods that define a fault, and their value for a fault rate: the least loss
rate, or the highest success probability, of a faulty link."""


@dataclass(frozen=True)
class NamedMethod:
    """A method as a user named it: its name, and a list of texts ``PARAMETER=VALUE``."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Parameters:
    """The parameters of methods whose names give none.

    Attributes:
        source: ``default``, ``paper``, or the name of a file, see
            `analysis.evaluation.parameter_sets`.
        by_method: Values by parameter, for each method. A variant without an entry has those of its
            method; a method without an entry has its defaults.
        fault_rate: The loss rate, above 0 and below 1, from which on the user calls a link faulty.
            Methods with a parameter ``fault_rate`` get this value, those with ``link_threshold``
            get 1 - fault_rate. None stands for `FAULT_RATE`, which values in ``by_method``
            override.
        files: Method files that the user named, by their names in tables: ``worst.py``. Their code
            is run, so only the command line or a program may fill this, never a record.
    """

    source: str = "default"
    by_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fault_rate: float | None = None
    files: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.fault_rate is not None:
            converted(Probability, self.fault_rate, f"FAULT_RATE={self.fault_rate:g}")

    def values_of(self, name: str) -> Mapping[str, Any]:
        """Return the set's values for a method, or for the method of a variant: by parameter."""
        return self.by_method.get(name) or self.by_method.get(split(name)[0], {})

    def origin(self, named: NamedMethod, constructor: Callable[..., Localizer]) -> str:
        """Return where a method's parameters come from, as text: ``paper, fault rate 0.01``."""
        origins = [self.source if self.values_of(named.name) else "default"]
        if self.fault_rate is not None and _of_fault(constructor, self.fault_rate):
            origins.append(f"fault rate {self.fault_rate:g}")
        return ", ".join([*origins, *(["as named"] if named.words else [])])


DEFAULTS = Parameters()


def read_names(text: str) -> list[NamedMethod]:
    """Split a list of methods in this module's grammar, and return them in its order; names and
    parameters are not checked."""
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
    """Return the values that a method is constructed with, by parameter.

    The values of its name (``own``) come first, then the user's fault rate, then the parameter set,
    then `FAULT_RATE`; parameters in none of them are left to the constructor.

    Raises:
        ValueError: The set has an unknown parameter or an invalid value (one line).
    """
    found: dict[str, Any] = dict(_of_fault(constructor, FAULT_RATE))
    for parameter, value in parameters.values_of(name).items():
        found[parameter] = _value(name, parameter, value, constructor)
    if parameters.fault_rate is not None:
        found |= _of_fault(constructor, parameters.fault_rate)
    return found | dict(own)


def _of_fault(constructor: Callable[..., Localizer], rate: float) -> dict[str, float]:
    """Return the values of a constructor's parameters that define a fault, for a fault rate."""
    known = declared(constructor)
    return {name: value_at(rate) for name, value_at in _OF_FAULT_RATE.items() if name in known}


def own_values(named: NamedMethod, constructor: Callable[..., Localizer]) -> dict[str, Any]:
    """Return the values that a method's name gives, by parameter.

    Raises:
        UserError: A parameter is unknown or given twice, or a value is missing or invalid.
    """
    found: dict[str, Any] = {}
    for word in named.words:
        parameter, _, text = (part.strip() for part in word.partition("="))
        if not text:
            raise UserError(f"{named.name}: a value is missing: use {named.name}:PARAMETER=VALUE")
        if parameter in found:
            raise UserError(f"{named.name}: {parameter} is given twice")
        found[parameter] = _value(named.name, parameter, text, constructor)
    return found


def in_words(values: Mapping[str, Any]) -> str:
    """Return values as text in the grammar: ``p_bad=0.003,link_prior=-15.0``."""
    return ",".join(f"{name}={_in_words(value)}" for name, value in values.items())


def in_force(
    method: Localizer, constructor: Callable[..., Localizer], arguments: Mapping[str, Any]
) -> str:
    """Return the values of all parameters of a method that was constructed with ``arguments``, as
    text in the grammar. Parameters whose value is no text, number or list are left out."""
    found = {}
    for name, (_, default) in declared(constructor).items():
        value = arguments.get(name, getattr(method, name, default))
        if isinstance(value, str | int | float | list | tuple):
            found[name] = value
    return in_words(found)


def _in_words(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return repr(float(value))  # also of NumPy's float types
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(_in_words(each) for each in value)
    return str(value)


def _value(name: str, parameter: str, raw: Any, constructor: Callable[..., Localizer]) -> Any:
    """Return a value, given as text or as YAML reads it, as the type that the constructor declares.

    Raises:
        UserError: The method has no such parameter, or the value is invalid (one line).
    """
    known = declared(constructor)
    if parameter not in known:
        if parameter == "kinds":
            raise UserError(f"{name}:{raw}: {name} takes no kinds: use {name}:PARAMETER=VALUE")
        there = nearest(parameter, known) if known else "it has none"
        raise UserError(f"{name} has no parameter {parameter}: {there}")
    kind = known[parameter][0]
    text = raw if isinstance(raw, str) else _in_words(raw)
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
        raise UserError(f"{name}: {parameter} cannot be given on the command line") from None
    if isinstance(value, float) and math.isnan(value):
        raise UserError(f"{name}:{parameter}={text}: it should be a number")
    return value
