"""What this project changed in published methods: ``NAME+CHANGE`` is a variant with a change on.

A method's class declares each of its changes beside the constructor, and each is one parameter of
it, which is off in the published method. ``flock`` is therefore the algorithm of the paper, and
``flock+refine`` is that with ``refine=True``; several may be combined, as in
``flock+refine+conditional``.
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
        name: How it is written, behind the method's name and a ``+``.
        parameter: The constructor's parameter that turns it on.
        value: What the parameter is then, unless another value is given.
        section: Where in the paper the changed step is.
        printed: What the paper says there.
        ours: What the method does with the change on.
        why: The reason.
        whose: Who thought of it: this project, the paper, which compares its method with that, or
            the authors, whose code does so.
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


def off_values(constructor: Callable[..., Any]) -> Mapping[str, Any]:
    """Return what the parameter of each change is in the published method.

    A subclass may have a constructor of its own: changes whose parameter it lacks are left out.
    """
    known = inspect.signature(_class_of(constructor)).parameters
    changes = changes_of(constructor)
    return {p: known[p].default for p in (each.parameter for each in changes) if p in known}


def on(method: object) -> tuple[Change, ...]:
    """Return the changes that are on in a method, in the order of their declaration.

    Where several share a parameter, it is the one whose value the parameter has.
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
    """Return a method's name and those of the changes behind it."""
    base, *changes = (part.strip() for part in name.split("+"))
    return base, changes


def variant(constructor: Callable[..., Any], *names: str, **calibrated: Any) -> Callable[..., Any]:
    """Return the constructor of a variant.

    Args:
        constructor: The published method's.
        names: Of its changes.
        calibrated: Defaults that the variant has of its own.

    Raises:
        ValueError: There is no such change, or it is given twice (one line).
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
