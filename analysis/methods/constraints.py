# SPDX-License-Identifier: Apache-2.0
"""Check a method's parameters against the constraints in its constructor's annotations.

    def __init__(self, *, noise: Rate = 5e-5, model: Literal["simple", "full"] = "full") -> None:

`analysis.methods.base.Method` wraps every constructor in `checked`, and
`analysis.methods.parameters` converts values that a user wrote by the same annotations. Both call
`converted`, so that a constraint is declared once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from pydantic import TypeAdapter, ValidationError

from testbed.errors import UserError
from testbed.record.messages import first_problem

Count = Annotated[int, Ge(1)]
NotNegative = Annotated[float, Ge(0)]
Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
Rate = Annotated[float, Ge(0), Lt(1)]
"""A loss rate below 1, so that some packets pass."""
Probability = Annotated[float, Gt(0), Lt(1)]


def declared(constructor: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the annotation and the default of each parameter of a constructor.

    If the annotations cannot be evaluated, because they name types that are imported for the type
    checker alone, a parameter has the type of its default.
    """
    function = constructor
    while isinstance(function, functools.partial):
        function = function.func
    try:
        hints = get_type_hints(
            function.__init__ if isinstance(function, type) else function, include_extras=True
        )
    except (NameError, TypeError):
        hints = {}
    found = {}
    for name, parameter in inspect.signature(constructor).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        usual = str if default is None else type(default)
        found[name] = hints.get(name, usual), default
    return found


def converted(annotation: Any, value: Any, given_as: str) -> Any:
    """Return ``value`` converted to the declared type.

    Args:
        annotation: The declared type with its constraints.
        value: A value, or its text.
        given_as: Parameter and value as an error message shows them: ``noise=2``.

    Raises:
        UserError: The value has another type or violates a constraint (one line).
        PydanticSchemaGenerationError: pydantic cannot check this type.
    """
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{given_as}: it {first_problem(error)[1]}") from None


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that raises UserError for values that its annotations exclude.

    It checks parameters that have a constraint or a list of literal values, if they are given by
    name, as all parameters of methods are.
    """

    @functools.cache
    def constraints() -> Mapping[str, Any]:
        """Return the annotations to check, by parameter; they are read once, at the first call."""
        hints = get_type_hints(init, include_extras=True)
        return {name: hint for name, hint in hints.items() if _constrained(hint)}

    @functools.wraps(init)
    def check(self: Any, *arguments: Any, **given: Any) -> None:
        """Check the values that are given by name, then call the constructor."""
        if given:
            for name, annotation in constraints().items():
                if name in given:
                    converted(annotation, given[name], f"{name}={given[name]!r}")
        init(self, *arguments, **given)

    return check


def _constrained(annotation: Any) -> bool:
    return "Annotated[" in (text := repr(annotation)) or "Literal[" in text
