# SPDX-License-Identifier: Apache-2.0
"""Variants of published methods, each the method with changes to its algorithm.

``NAME+CHANGE`` is the method with one change. A method's class declares its changes beside the
constructor. Each change sets one parameter of the constructor, whose default is the published
method. So ``flock`` is the algorithm of the paper, and ``flock+refine`` is ``flock`` with
``refine=True``; changes can be combined, as in ``flock+refine+conditional``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from testbed.errors import UserError
from testbed.fabric.names import nearest


@dataclass(frozen=True)
class Change:
    """One departure from a paper's algorithm.

    Attributes:
        name: Its name, written after the method's name and a ``+``.
        parameter: The constructor's parameter that turns it on.
        value: The parameter's value with the change on, unless the user gives another.
        section: The section of the paper that describes the changed step.
        printed: What the paper says there.
        ours: What the method does with the change on.
        why: The reason for the change.
        whose: Its origin: this project; the paper, which compares its method with this version; or
            the authors, whose published code does so.
    """

    name: str
    parameter: str
    value: Any
    section: str
    printed: str
    ours: str
    why: str
    whose: Literal["this project", "the paper", "the authors"] = "this project"


def changes_of(constructor: Callable[..., Any]) -> Sequence[Change]:
    """Return the changes that a method's class declares; none for methods of other packages."""
    return getattr(_class_of(constructor), "changes", ())


@functools.cache
def _parameters(constructor: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor by name."""
    return inspect.signature(constructor).parameters


def off_values(constructor: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the value that the parameter of each change has in the published method, by parameter.

    Changes whose parameter a subclass's own constructor lacks are left out.
    """
    known = _parameters(_class_of(constructor))
    changes = changes_of(constructor)
    return {p: known[p].default for p in (each.parameter for each in changes) if p in known}


def on(method: object) -> tuple[Change, ...]:
    """Return the changes that are turned on in a method, in the order of their declaration.

    Of several changes of one parameter, it is the one whose value the parameter has.
    """
    off = off_values(type(method))
    found: dict[str, Change] = {}
    for change in changes_of(type(method)):
        p = change.parameter
        if p not in off or (value := getattr(method, p)) == off[p]:
            continue
        if p not in found or value == change.value:
            found[p] = change
    return tuple(found.values())


def split(name: str) -> tuple[str, list[str]]:
    """Split ``NAME+CHANGE+CHANGE``; return the method's name and the names of its changes."""
    base, *changes = (part.strip() for part in name.split("+"))
    return base, changes


def variant(constructor: Callable[..., Any], *names: str, **calibrated: Any) -> Callable[..., Any]:
    """Return the constructor of a variant.

    Args:
        constructor: The constructor of the published method.
        names: Names of the changes to turn on.
        calibrated: Other defaults of the variant, by parameter.

    Raises:
        UserError: There is no such change, or it is given twice (one line).
    """
    known = {change.name: change for change in changes_of(constructor)}
    values: dict[str, Any] = {}
    for name in names:
        if name not in known:
            there = nearest(name, known) if known else "it has none"
            raise UserError(f"there is no change +{name}: {there}")
        if known[name].parameter in values:
            raise UserError(f"+{name} is given twice, or with another change of the same step")
        values[known[name].parameter] = known[name].value
    return functools.partial(constructor, **values | calibrated)


def _class_of(constructor: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(constructor, functools.partial):
        constructor = constructor.func
    return constructor
