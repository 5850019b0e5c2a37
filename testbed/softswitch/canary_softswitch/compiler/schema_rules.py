# SPDX-License-Identifier: Apache-2.0
"""Rules of the schema: records, bounds of numbers and strings, and objects whose kind is given by a
key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler
from pydantic_core import ArgsKwargs, CoreSchema, PydanticCustomError, core_schema

MAX_BITS = 1 << 16
"""The largest width, in bits, of a field, a constant or any other value."""


def Between(least: int, most: int) -> Any:
    """Return the rule for a number from ``least`` to ``most``: an int, no bool, float or text."""
    return Field(ge=least, le=most, strict=True)


class Kinds:
    """The rule for an object whose kind, and so whose record, one of its keys gives.

    Args:
        known: The record of each kind.
        other: The record of any other kind; without it another kind is an error.
        kind: The key, or a function that returns the kind of what the JSON has in this place, None
            if it has none.

    An object that only wraps another is replaced by the inner one.
    """

    def __init__(
        self,
        known: Mapping[str, Any],
        other: Any = None,
        kind: Callable[[Any], Any] | str = "type",
    ) -> None:
        self._known = known
        self._other = other
        self._kind = kind

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices = {name: handler.generate_schema(record) for name, record in self._known.items()}
        if self._other is not None:
            choices[""] = handler.generate_schema(self._other)
        union = core_schema.tagged_union_schema(choices, discriminator=self._tag)
        return core_schema.no_info_before_validator_function(self._checked, union)

    def _tag(self, data: Any) -> str | None:
        key = self._kind
        found = key(data) if callable(key) else data.get(key) if isinstance(data, dict) else None
        if not isinstance(found, str):
            return None
        return found if found in self._known else ""

    def _checked(self, data: Any) -> Any:
        """Return the data without wrappers; raise an error if its kind is unknown."""
        data = unwrapped(data)
        tag = self._tag(data)
        if tag is None and not isinstance(data, dict):
            raise PydanticCustomError("kind", "Input should be an object")
        if tag is None or (not tag and self._other is None):
            wanted = {"kinds": ", ".join(self._known)}
            raise PydanticCustomError("kind", "Input should be of one of the kinds {kinds}", wanted)
        return data


class _FailFast:
    """The rule FailFast, in a form that can be a part of a union, unlike pydantic's own."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        rule: Any = {**handler(source), "fail_fast": True}
        return rule


def unwrapped(data: Any) -> Any:
    """Return the value in any number of objects ``{"type": "expression", "value": ...}``."""
    while isinstance(data, dict) and data.get("type") == "expression" and "value" in data:
        data = data["value"]
    return data


def _hex(text: object) -> int:
    """Return the value of a BMv2 hex string, which may start with ``-``."""
    if not isinstance(text, str) or len(text) > MAX_BITS // 4 + 3:
        raise PydanticCustomError("hex", "Input should be a hexadecimal number in a string")
    found = re.fullmatch(r"(-?)(?:0[xX])?([0-9a-fA-F]*)", text)
    if not found:
        raise PydanticCustomError("hex", "Input should be a hexadecimal number")
    value = int(found[2] or "0", 16)
    return -value if found[1] else value


def _arguments(data: Any) -> Any:
    return ArgsKwargs(tuple(data)) if isinstance(data, list) else None


def _bit(data: Any) -> Any:
    return data == 1 if type(data) is int and data in (0, 1) else data


def _array(data: Any) -> Any:
    return [] if data == {} else data


Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], _FailFast()]
"""An array; validation stops at the first wrong element."""
Name = Annotated[str, Field(min_length=1, max_length=1000, strict=True)]
Text = Annotated[str, Field(max_length=10_000, strict=True)]
Id = Annotated[int, Between(0, (1 << 31) - 1)]
Flag = Annotated[bool, Field(strict=True)]
FlagOrBit = Annotated[bool, Field(strict=True), BeforeValidator(_bit)]
"""A flag that may be 0 or 1, too: p4c writes the sign of a field of type bool as 0."""
Hex = Annotated[int, BeforeValidator(_hex)]
Row = BeforeValidator(_arguments)
"""The rule of a record that is an array of its members in the JSON; the last may be absent."""
Empty = BeforeValidator(_array)
"""The rule of an array that p4c writes as ``{}`` if it is empty."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """An object of the JSON; each subclass is a frozen dataclass whose fields are the keys."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True)(cls)


class Named(Record):
    """An object that others refer to by its name."""

    name: Name


class NameValue(Record):
    """A value, or the target of an extraction, that is the name of an object."""

    value: Name
