# SPDX-License-Identifier: Apache-2.0
"""The settings as keyword arguments of Python, which editors complete and type checkers know.

`GivenSettings` has the fields of `scenarios.Settings`; a test holds that. Besides the texts of the
command line, lists and other objects are accepted, see `as_settings`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np

from analysis.evaluation.parameter_sets import choose_methods
from analysis.methods.base import Localizer
from analysis.methods.registry import BuiltMethod
from scenarios.experiment.settings import described
from testbed.errors import UserError
from testbed.fabric.names import nearest, shortened

Names = str | Sequence[str]
"""One name, or several; a text may be a list as on the command line."""

Range = str | float | tuple[float, float]
"""A number, or a lower and an upper bound between which it is drawn."""

Methods = str | Localizer | Sequence[str | Localizer]
"""A method, by name or as an object, or several."""


class GivenSettings(TypedDict, total=False):
    """The settings of a run; `docs/reference/options.md` says what each means."""

    k: int
    faults: str | float | os.PathLike[str] | Sequence[str] | Mapping[str, float]
    events: Names
    seed: int
    epochs: int
    epoch_ms: int
    skew: float
    traffic: str | os.PathLike[str]
    tcp: float
    load: float | Literal["auto"]
    flow_rate: Range
    locality: str | float
    routing: Literal["ecmp", "flowlet", "spray", "adaptive"]
    monitors: Names
    alpha: int
    beta: int
    delta: int
    eta: int
    probes: int
    icmp_per_s: float
    traces_per_s: float
    noise: Range
    measure: Names
    diagnose: str
    backend: Literal["auto", "virtual", "flow", "softswitch", "bmv2"]
    threads: int
    injector: Literal["auto", "p4", "netem", "nft"]
    topology: str | os.PathLike[str]
    tier0: str
    hosts: int
    rate: float
    queue: int
    delay: float
    telemetry: Names


_JOINED = {"faults": ", ", "events": "; ", "monitors": "+", "measure": "+", "telemetry": "+"}
"""Settings that take a list, and what stands between its items on the command line."""

_RANGES = ("flow_rate", "noise")


def as_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the values that the command line would have.

    ``faults`` takes a share of the links (0.1), a number of links (6), a list of items
    (``["6links", "tor0_0->agg0_1:0.05"]``), or the loss rate by link
    (``{"tor0_0->agg0_1": 0.05}``); ``events``, ``monitors``, ``measure`` and ``telemetry`` take
    lists, ``flow_rate`` and ``noise`` a pair of bounds, and files may be paths.

    Raises:
        UserError: There is no such setting, or a value is of no kind that it takes (one line).

    >>> as_settings({"faults": 0.1, "noise": (0, 0.001), "telemetry": ["A1", "P"]})
    {'faults': '10pct', 'noise': '0..0.001', 'telemetry': 'A1+P'}
    """
    known = {setting.name: setting for setting in described()}
    found = {}
    for name, value in given.items():
        if name not in known:
            raise UserError(f"there is no setting {name}: {nearest(name, known)}")
        if known[name].kind is str:
            found[name] = _text(name, value)
        else:
            found[name] = value.item() if isinstance(value, np.generic) else value
            if isinstance(value, bool) or not isinstance(found[name], int | float | str):
                raise _wrong(name, value, "a number")
    return found


def _text(name: str, value: Any) -> str:
    """Return the value of a setting that is a text on the command line."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str):
        return value
    if name == "faults" and not isinstance(value, bool):
        if isinstance(value, int):
            return f"{value}links" if value else "none"
        if isinstance(value, float) and 0 <= value <= 1:
            return f"{100 * value:.12g}pct" if value else "none"
        if isinstance(value, Mapping):
            return (
                ", ".join(f"{link}:{_number(name, rate)}" for link, rate in value.items()) or "none"
            )
    if name in _RANGES and isinstance(value, tuple) and len(value) == 2:
        return f"{_number(name, value[0])}..{_number(name, value[1])}"
    if name in (*_RANGES, "locality") and not isinstance(value, bool):
        return _number(name, value)
    if name in _JOINED and isinstance(value, Iterable):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return _JOINED[name].join(items) or "none"
    kinds = {"faults": "a text, a share, a number of links, a list, or rates by link"}
    kinds |= dict.fromkeys(_RANGES, "a number, or a pair of bounds")
    several = ("events", "monitors", "measure", "telemetry")
    kinds |= dict.fromkeys(several, "a text, or a list of texts")
    raise _wrong(name, value, kinds.get(name, "a text"))


def _number(name: str, value: Any) -> str:
    try:
        return f"{float(value):.12g}"
    except (TypeError, ValueError):
        raise _wrong(name, value, "a number") from None


def _wrong(name: str, value: Any, what: str) -> UserError:
    return UserError(f"{name}={shortened(repr(value))}: {name} takes {what}")


def as_methods(
    methods: Methods | None, parameters: str = "default", fault_rate: float | None = None
) -> list[BuiltMethod]:
    """Return methods, built; by default those of the testbed.

    Args:
        methods: As on the command line, a list, or objects of your own.
        parameters: ``default``, ``paper``, or a file of `canary calibrate`, for methods by name.
        fault_rate: The loss rate from which on a link is faulty, for methods that ask.

    Raises:
        UserError: There is no such method, or no method at all (one line).
    """
    if methods is None or isinstance(methods, str):
        return choose_methods(methods, parameters, fault_rate)[0]
    several = list(methods) if isinstance(methods, Sequence) else [methods]
    found: list[BuiltMethod] = []
    for each in several:
        if isinstance(each, str):
            found += choose_methods(each, parameters, fault_rate)[0]
        elif callable(getattr(each, "localize", None)):
            found.append(BuiltMethod(each.name, each, "", "the program", "other"))
        else:
            raise _wrong("methods", each, "names, and objects with a method localize()")
    if not found:
        raise UserError("methods is an empty list: name one, or leave it out")
    return list({each.name: each for each in found}.values())


def method_text(methods: Methods | None) -> str | None:
    """Return methods as a text of the command line, for work in other processes.

    Raises:
        UserError: One of them is an object (one line).
    """
    if methods is None or isinstance(methods, str):
        return methods
    several = list(methods) if isinstance(methods, Sequence) else [methods]
    for each in several:
        if not isinstance(each, str):
            raise _wrong("methods", each, "names and files here, as other processes build them")
    return ",".join(str(each) for each in several)
