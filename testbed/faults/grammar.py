# SPDX-License-Identifier: Apache-2.0
"""The grammar of FAULTS: its text or its YAML file, read as entries before links are drawn.

What a fault may be (its rate, kind, match and schedule) is checked in `testbed.faults.plan`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from testbed.faults.plan import (
    MATCH_BITS,
    FaultError,
    FlowMatch,
    Kind,
    Ternary,
    check_kind,
    checked_rate,
    checked_schedule,
    schedule_problem,
)
from testbed.record.yaml_file import YamlError, read_yaml

# ---- the file's schema -----------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Match(_Strict):
    src_ip: str | None = None
    dst_ip: str | None = None
    src_port: str | int | None = None
    dst_port: str | int | None = None
    protocol: str | int | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> _Match:
        self.build()
        return self

    def build(self) -> FlowMatch:
        """Return the match as a `FlowMatch`; raise FaultError if it is empty or invalid."""
        fields = {field: getattr(self, field) for field in MATCH_BITS}
        return FlowMatch(**{f: _ternary(f, v) for f, v in fields.items() if v is not None})


class Entry(_Strict):
    """One selector of links or devices, and the fault that they get."""

    percent: float | None = None
    links: int | None = Field(None, strict=True)
    link: str | None = None
    host_percent: float | None = None
    host_links: int | None = Field(None, strict=True)
    devices: int | None = Field(None, strict=True)
    device: str | None = None
    share: float | None = None
    rate_of: Literal["device", "link"] = "device"
    rate: float | None = None
    kind: Kind = "drop"
    match: _Match | None = None
    schedule: tuple[tuple[float, float], ...] = ()
    _ranges: dict[str, tuple[float, float]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _with_ranges(cls, data: Any, read: Callable[[Any], Entry]) -> Entry:
        """Validate a field given as ``LOW..HIGH`` at both ends; it is LOW until it is drawn."""
        if not isinstance(data, dict):
            return read(data)
        wide = {n: v for n, v in data.items() if n in _DRAWN and ".." in str(v)}
        low, high = ({n: _end(n, str(v), end) for n, v in wide.items()} for end in (0, 1))
        top = {name: getattr(read(data | high), name) for name in wide}
        entry = read(data | low)  # pydantic may fill the same object again
        for name, value in wide.items():
            ends = getattr(entry, name), top[name]
            if not ends[0] < ends[1]:
                raise ValueError(f"{name} {value} runs backwards: give the lower number first")
            entry._ranges[name] = ends
        return entry

    def settled(self, rng: np.random.Generator) -> Entry:
        """Return the entry with ranges drawn uniformly, except rates: each link has its own."""
        drawn: dict[str, float] = {}
        for name in _DRAWN[:-1]:
            if name in self._ranges:
                low, high = self._ranges[name]
                whole = name in _WHOLE
                drawn[name] = (
                    int(rng.integers(int(low), int(high) + 1)) if whole else rng.uniform(low, high)
                )
        return self.model_copy(update=drawn) if drawn else self

    @property
    def rates(self) -> tuple[float, float] | None:
        """The bounds between which rates are drawn, None if no range of rates is given."""
        return self._ranges.get("rate")

    def at(self, rate: float) -> Entry:
        """Return the entry with this fixed rate instead of its own rate or range of rates."""
        settled = self.model_copy(update={"rate": rate})
        settled._ranges = {}
        return settled

    @field_validator("rate")
    @classmethod
    def _rate_in_range(cls, rate: float | None) -> float | None:
        return None if rate is None else checked_rate(rate)

    @field_validator("schedule")
    @classmethod
    def _spans_ascend(
        cls, schedule: tuple[tuple[float, float], ...]
    ) -> tuple[tuple[float, float], ...]:
        return checked_schedule(schedule)

    @model_validator(mode="after")
    def _consistent(self) -> Entry:
        selectors = [s for s in _SELECTORS if getattr(self, s) is not None]
        if len(selectors) != 1:
            found = " and ".join(selectors) if selectors else "none"
            raise ValueError(f"an entry needs one of {', '.join(_SELECTORS)}; it has {found}")
        for count in ("percent", "host_percent", *_WHOLE):
            value = getattr(self, count)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{count} must be above 0, not {value:g}")
        if self.share is not None:
            if self.devices is None and self.device is None:
                raise ValueError("share is only for the links of a device: leave it out")
            if not 0 < self.share <= 100:
                raise ValueError(f"share must be a percentage up to 100, not {self.share:g}")
        if self.rate_of == "link" and self.devices is None and self.device is None:
            raise ValueError("rate_of is only for the links of a device: leave it out")
        check_kind(self.kind, self.rate)
        return self


class Document(_Strict):
    """The content of FAULTS: the entries, and the names of switches that count as failed."""

    faults: tuple[Entry, ...]
    failed_devices: tuple[str, ...] = ()


def _end(name: str, text: str, end: int) -> float | int | str:
    """Return the lower (0) or upper (1) end of ``LOW..HIGH``; a number if it is a valid count."""
    part = text.split("..", 1)[end].strip()
    whole = name in _WHOLE and part.isdecimal()
    return int(part) if whole else part


_DRAWN = ("percent", "links", "host_percent", "host_links", "devices", "share", "rate")
_WHOLE = ("links", "host_links", "devices")
_SELECTORS = ("percent", "links", "link", "host_percent", "host_links", "devices", "device")
_PROTOCOLS = {"tcp": 6, "udp": 17}


def _ternary(field: str, text: str | int) -> Ternary:
    """Return the match of a field from text: ``10.0.0.0/8``, ``443``, ``0x1/0x1`` or ``tcp``."""
    bits = MATCH_BITS[field]
    full = (1 << bits) - 1
    value_text, slash, mask_text = str(text).partition("/")
    try:
        if bits == 32:
            value = int(ipaddress.IPv4Address(value_text))
            mask = _ip_mask(mask_text) if slash else full
        else:
            value = _PROTOCOLS.get(value_text.lower())
            value = int(value_text, 0) if value is None else value
            mask = int(mask_text, 0) if slash else max(full, value)  # refused where it is too wide
    except ValueError:
        example = "10.2.0.0/16 or 0.0.0.1/0.0.0.1" if bits == 32 else "80 or 0x1/0x1"
        raise ValueError(f"{field} {text!r} is not a match: write {example}") from None
    return Ternary(value, mask)


def _ip_mask(text: str) -> int:
    if "." in text:
        return int(ipaddress.IPv4Address(text))
    length = int(text)
    if not 0 <= length <= 32:
        raise ValueError
    return (0xFFFFFFFF << (32 - length)) & 0xFFFFFFFF


# ---- reading ---------------------------------------------------------------------------------

FORMS = "none, 10pct, 6links, devices:1, device:agg0_1, tor0_0->agg0_1:0.05 or a .yaml file"
"""What FAULTS may be, for messages."""


def read_text(text: str) -> tuple[Entry, ...]:
    """Return the entries of a comma-separated list of faults.

    Raises:
        FaultError: An item is unknown or makes no sense. One line.
    """
    if text.lower() == "none":
        return ()
    return tuple(_read_item(item.strip(), text) for item in text.split(","))


def _read_item(item: str, text: str) -> Entry:
    number = r"\d{1,12}(?:\.\d+)?(?:\.\.\d{1,12}(?:\.\d+)?)?"
    count = r"\d{1,9}(?:\.\.\d{1,9})?"
    share = rf"(?:@(?P<share>{number})\s*(?:pct|%))?"
    patterns = (
        rf"(?P<percent>{number})\s*(?:pct|%)",
        rf"(?P<links>{count})\s*links?",
        rf"host-links:(?P<host_percent>{number})\s*(?:pct|%)",
        rf"host-links:(?P<host_links>{count})",
        rf"devices:(?P<devices>{count}){share}",
        rf"device:(?P<device>[^:@]+){share}",
        rf"(?P<rate_of>device-links):(?:(?P<devices>{count})|(?P<device>[^:@]+)){share}",
        r"(?P<link>(?>[^:]*->[^:]*))",
        r"(?P<link>(?>[^:\s][^:]*-[^:]*[^:\s]\s*))",  # one try, so that the time is linear
    )
    if item.endswith("-"):
        raise FaultError(
            f"FAULTS item {_short(item)} ends in -: put it in quotes, as in "
            "FAULTS='tor0_0->agg0_1:0.05', or the shell writes to the file behind >; "
            "tor0_0-agg0_1:0.05, both directions, needs none"
        )
    for pattern in patterns:
        found = re.fullmatch(rf"{pattern}(?::(?P<rate>.*))?", item)
        if found is None:
            continue
        fields: dict[str, Any] = {k: v for k, v in found.groupdict().items() if v is not None}
        if "rate_of" in fields:
            fields["rate_of"] = "link"
        for name in _WHOLE:
            if fields.get(name, "").isdecimal():
                fields[name] = int(fields[name])
        try:
            return Entry(**fields)
        except ValidationError as error:
            raise FaultError(f"FAULTS item {_short(item)}: {_one_line(error)}") from None
    if not item:
        raise FaultError(f"FAULTS={_short(text)} has an empty item: use {FORMS}")
    if item.lower() == "none":
        raise FaultError("FAULTS: none cannot be combined with other items")
    raise FaultError(f"FAULTS item {_short(item)} is unknown: use {FORMS}")


def _short(text: str) -> str:
    """Return the text in quotes, cut at 80 characters: it may be a whole file."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


def read_file(path: Path, duration_s: float | None = None) -> Document:
    """Return the content of a fault file, checked for a run of ``duration_s`` seconds if given.

    Raises:
        FaultError: It cannot be read, or says what makes no sense. One line with its place.
    """
    absent = f"no fault file {path}: check FAULTS, or use {FORMS}"
    try:
        file = read_yaml(path, absent, "the top level must be a mapping with the key faults")
    except YamlError as error:
        raise FaultError(str(error)) from None
    if found := file.truth_value():
        line, word = found
        what = f"{word} is a truth value: write a number, or put a name in quotes"
        raise FaultError(f"{path} line {line}: {what}")
    try:
        document = Document.model_validate(file.content)
    except ValidationError as error:
        line = file.line(_first(error)["loc"])
        raise FaultError(f"{path} line {line}: {_one_line(error)}") from None
    for number, entry in enumerate(document.faults):
        late = [span for span in entry.schedule if duration_s is not None and span[0] >= duration_s]
        if late:
            line = file.line(("faults", number, "schedule"))
            problem = schedule_problem(late[0], cast(float, duration_s))
            raise FaultError(f"{path} line {line}: faults[{number}] {problem}")
    return document


def _first(error: ValidationError) -> ErrorDetails:
    """Return the error to report: an unknown key explains that another is missing."""
    errors = error.errors()
    return next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])


def _one_line(error: ValidationError) -> str:
    first = _first(error)
    models: dict[str, type[BaseModel]] = {"faults": Entry, "match": _Match}
    where, model = "", Document
    for part in first["loc"][:-1]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
        model = models.get(str(part), model)
    last = first["loc"][-1] if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(model.model_fields)
        return f"{where + ': ' if where else ''}unknown key {last!r}; allowed are {allowed}"
    where += f"[{last}]" if isinstance(last, int) else f".{last}" if where else str(last)
    name = next((part for part in reversed(first["loc"]) if isinstance(part, str)), "")
    if first["type"] == "model_type" and name == "faults":
        name = "entry"
    message = _EXPECTED.get(name, "") if first["type"] in _SHAPE_ERRORS else ""
    if not message:
        message = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return f"{where}: {message}" if where else message


_SHAPE_ERRORS = ("tuple_type", "too_short", "too_long", "missing", "model_type")
_EXPECTED = {
    "faults": "must be a list of entries, such as - {link: tor0_0->agg0_0, rate: 0.05}",
    "entry": "must be an entry, such as {link: tor0_0->agg0_0, rate: 0.05}",
    "match": "must select flows, such as {dst_port: 80}",
    "schedule": "must be a list of [start, end] in seconds, such as [[0.1, 0.3]]",
    "failed_devices": "must be a list of switches, such as [agg0_1]",
}
"""The message for a value of another shape, by the name of its field."""
