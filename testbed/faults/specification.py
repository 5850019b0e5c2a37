"""Which links break, how much and when: ``FAULTS=10pct,tor0_0->agg0_1:0.05`` or a YAML file.

The text is a comma list of ``SELECTOR[:RATE]``:

    none                  nothing (alone)
    10pct, 0.5pct         that share of the directed fabric links, drawn at random
    6links                that many links, drawn at random
    tor0_0->agg0_1        this link
    devices:1             all links of that many switches, drawn at random
    device:agg0_1         all links of this switch
    devices:2@50pct       half of the links of each, drawn at random; also device:agg0_1@50pct

A YAML file holds ``faults``, a list of entries with one selector (``percent``, ``links``, ``link``,
``devices`` or ``device``) and optionally ``rate``, ``kind``, ``match`` and ``schedule``, with a
device also ``share``, the percentage of its links:

    faults:
      - link: tor0_0->agg0_1
        kind: blackhole
        match: {dst_ip: 10.2.0.0/16, protocol: tcp, src_port: 0x1/0x1}
        schedule: [[0.1, 0.3], [0.5, 0.6]]      # seconds

Named links come first, then named devices, random devices and random links; each takes only links
that are still healthy. A rate that is not given is drawn (see ``PAPER_RATES``).
"""

from __future__ import annotations

import difflib
import ipaddress
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from testbed.fabric.clos import Fabric, TopologyError

__all__ = [
    "LOW_RATES",
    "PAPER_RATES",
    "Fault",
    "FaultError",
    "FaultPlan",
    "FlowMatch",
    "RateRange",
    "Ternary",
    "fault_file",
    "parse_faults",
]

Kind = Literal["drop", "blackhole", "corrupt"]


class FaultError(ValueError):
    """FAULTS cannot be understood, or asks for what the topology does not have. One line."""


@dataclass(frozen=True)
class RateRange:
    """Loss rates uniform in [low, high], for ``weight`` out of the sum of all weights."""

    low: float
    high: float
    weight: int


PAPER_RATES = (
    RateRange(0.2, 1.0, 11),
    RateRange(0.1, 0.2, 13),
    RateRange(0.05, 0.1, 9),
    RateRange(0.01, 0.05, 9),
    RateRange(0.001, 0.01, 10),
)
"""Canary, section IV-D: so many of 52 faulty links."""

LOW_RATES = PAPER_RATES[3:]


@dataclass(frozen=True)
class Ternary:
    """Matches x with ``x & mask == value``; no bit of ``value`` lies outside ``mask``."""

    value: int
    mask: int


@dataclass(frozen=True)
class FlowMatch:
    """The flows that a fault hits; a field that is None matches everything."""

    src_ip: Ternary | None = None
    dst_ip: Ternary | None = None
    src_port: Ternary | None = None
    dst_port: Ternary | None = None
    protocol: Ternary | None = None


@dataclass(frozen=True)
class Fault:
    """A fault of a directed fabric link.

    Attributes:
        link: Directed link id.
        rate: The share of the matching packets that is lost, in (0, 1]; 1 for a black hole.
        kind: ``drop`` at random, ``blackhole`` for every packet, or ``corrupt``: the next switch
            discards the packet.
        match: The flows it hits, or None for all.
        schedule: Disjoint ascending (start, end) in seconds; empty for always.
    """

    link: int
    rate: float
    kind: Kind = "drop"
    match: FlowMatch | None = None
    schedule: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class FaultPlan:
    """The truth: all faults, ascending by link, and the switches that failed as a whole."""

    faults: tuple[Fault, ...] = ()
    devices: tuple[int, ...] = ()

    @property
    def links(self) -> npt.NDArray[np.int32]:
        """The faulty directed links, sorted and unique."""
        return np.unique(np.array([fault.link for fault in self.faults], np.int32))

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a fault: ``link`` (id), ``rate``, ``kind``, ``match``, ``schedule``.

        ``match`` is None or maps a field to ``"value/mask"``; ``schedule`` is a list of pairs.
        """
        return [
            {
                "link": fault.link,
                "rate": fault.rate,
                "kind": fault.kind,
                "match": None if fault.match is None else _match_text(fault.match),
                "schedule": [list(span) for span in fault.schedule],
            }
            for fault in self.faults
        ]

    def to_yaml(self, topology: Fabric) -> str:
        """A fault file that ``parse_faults`` reads as this very plan, whatever the seed."""
        entries = []
        for record in self.to_records():
            record["link"] = topology.link_names[record["link"]]
            entries.append({key: value for key, value in record.items() if value})
        devices = [topology.switch_names[device] for device in self.devices]
        return yaml.safe_dump({"faults": entries, "failed_devices": devices}, sort_keys=False)


def fault_file(text: str) -> Path | None:
    """The file that FAULTS names, None if it says the faults itself."""
    text = text.strip()
    return Path(text) if text.lower().endswith((".yaml", ".yml")) else None


def parse_faults(
    text: str, topology: Fabric, seed: int, rates: tuple[RateRange, ...] = PAPER_RATES
) -> FaultPlan:
    """Read FAULTS.

    Args:
        text: A comma list, or the path of a ``.yaml`` or ``.yml`` file; see the module.
        topology: The fabric that breaks.
        seed: Draws links, devices and rates. Same seed, same plan.
        rates: Where rates that are not given are drawn from. N links fall into the ranges in
            proportion to the weights, each count rounded up or down by the draw.

    Raises:
        FaultError: One line saying what is wrong and what would be right.
    """
    path = fault_file(text)
    document = _read_file(path) if path else _Document(faults=_read_text(text.strip()))
    return _resolve(document, topology, np.random.default_rng([seed, 0xFA17]), rates)


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
    def _parses(self) -> _Match:
        if not any(getattr(self, field) is not None for field in _MATCH_BITS):
            raise ValueError(f"match is empty: give one of {', '.join(_MATCH_BITS)}")
        self.build()
        return self

    def build(self) -> FlowMatch:
        fields = {field: getattr(self, field) for field in _MATCH_BITS}
        return FlowMatch(**{f: _ternary(f, v) for f, v in fields.items() if v is not None})


class _Entry(_Strict):
    percent: float | None = None
    links: int | None = Field(None, strict=True)
    link: str | None = None
    devices: int | None = Field(None, strict=True)
    device: str | None = None
    share: float | None = None
    rate: float | None = None
    kind: Kind = "drop"
    match: _Match | None = None
    schedule: tuple[tuple[float, float], ...] = ()

    @field_validator("rate")
    @classmethod
    def _rate_in_range(cls, rate: float | None) -> float | None:
        if rate is not None and not 0 < rate <= 1:
            raise ValueError(f"{rate:g} is outside (0, 1]: a loss rate of 5 % is 0.05")
        return rate

    @field_validator("schedule")
    @classmethod
    def _spans_ascend(
        cls, schedule: tuple[tuple[float, float], ...]
    ) -> tuple[tuple[float, float], ...]:
        times = [time for span in schedule for time in span]
        ascending = all(a < b for a, b in itertools.pairwise(times))
        if times and not (times[0] >= 0 and ascending and times[-1] < float("inf")):
            raise ValueError(
                "schedule must be [start, end] pairs in seconds from 0 on, ascending and disjoint"
            )
        return schedule

    @model_validator(mode="after")
    def _consistent(self) -> _Entry:
        given = [s for s in _SELECTORS if getattr(self, s) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"an entry needs one of {', '.join(_SELECTORS)}; it has {found}")
        for count in ("percent", "links", "devices"):
            value = getattr(self, count)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{count} must be above 0, not {value:g}")
        if self.share is not None:
            if self.devices is None and self.device is None:
                raise ValueError("share is of a device's links: leave it out")
            if not 0 < self.share <= 100:
                raise ValueError(f"share must be a percentage up to 100, not {self.share:g}")
        if self.kind == "blackhole" and self.rate not in (None, 1.0):
            raise ValueError("a blackhole drops everything: leave the rate out, or use kind drop")
        return self


class _Document(_Strict):
    faults: tuple[_Entry, ...]
    failed_devices: tuple[str, ...] = ()


_SELECTORS = ("percent", "links", "link", "devices", "device")
_MATCH_BITS = {"src_ip": 32, "dst_ip": 32, "src_port": 16, "dst_port": 16, "protocol": 8}
_PROTOCOLS = {"tcp": 6, "udp": 17}


def _ternary(field: str, text: str | int) -> Ternary:
    """``10.0.0.0/8``, ``0.0.0.1/0.0.0.1``, ``443``, ``0x1/0x1``, ``tcp``."""
    bits = _MATCH_BITS[field]
    full = (1 << bits) - 1
    value_text, slash, mask_text = str(text).partition("/")
    try:
        if bits == 32:
            value = int(ipaddress.IPv4Address(value_text))
            mask = _ip_mask(mask_text) if slash else full
        else:
            value = _PROTOCOLS.get(value_text.lower(), -1)
            value = int(value_text, 0) if value < 0 else value
            mask = int(mask_text, 0) if slash else full
    except ValueError:
        example = "10.2.0.0/16 or 0.0.0.1/0.0.0.1" if bits == 32 else "80 or 0x1/0x1"
        raise ValueError(f"{field} {text!r} is no match: write {example}") from None
    if not (0 <= value <= full and 0 <= mask <= full):
        raise ValueError(f"{field} {text!r} does not fit {bits} bits")
    if value & ~mask:
        raise ValueError(f"{field} {text!r} can never match: the value has bits outside its mask")
    return Ternary(value, mask)


def _ip_mask(text: str) -> int:
    if "." in text:
        return int(ipaddress.IPv4Address(text))
    length = int(text)
    if not 0 <= length <= 32:
        raise ValueError
    return (0xFFFFFFFF << (32 - length)) & 0xFFFFFFFF


def _match_text(match: FlowMatch) -> dict[str, str]:
    text = {}
    for field, bits in _MATCH_BITS.items():
        ternary: Ternary | None = getattr(match, field)
        if ternary is None:
            continue
        if bits == 32:
            value, mask = (ipaddress.IPv4Address(n) for n in (ternary.value, ternary.mask))
            text[field] = f"{value}/{mask}"
        else:
            text[field] = f"{ternary.value:#x}/{ternary.mask:#x}"
    return text


# ---- reading ---------------------------------------------------------------------------------

_FORMS = "none, 10pct, 6links, devices:1, device:agg0_1, tor0_0->agg0_1:0.05 or a .yaml file"


def _read_text(text: str) -> tuple[_Entry, ...]:
    if text.lower() == "none":
        return ()
    return tuple(_read_item(item.strip(), text) for item in text.split(","))


def _read_item(item: str, text: str) -> _Entry:
    number = r"\d+(?:\.\d+)?"
    share = rf"(?:@(?P<share>{number})\s*(?:pct|%))?"
    patterns = (
        rf"(?P<percent>{number})\s*(?:pct|%)",
        r"(?P<links>\d+)\s*links?",
        rf"devices:(?P<devices>\d+){share}",
        rf"device:(?P<device>[^:@]+){share}",
        r"(?P<link>[^:]*->[^:]*)",
    )
    for pattern in patterns:
        found = re.fullmatch(rf"{pattern}(?::(?P<rate>.*))?", item)
        if found is None:
            continue
        fields: dict[str, Any] = {k: v for k, v in found.groupdict().items() if v is not None}
        for count in ("links", "devices"):
            if count in fields:
                fields[count] = int(fields[count])
        try:
            return _Entry(**fields)
        except ValidationError as error:
            raise FaultError(f"FAULTS item {item!r}: {_one_line(error)}") from None
    if not item:
        raise FaultError(f"FAULTS={text!r} has an empty item: use {_FORMS}")
    if item.lower() == "none":
        raise FaultError("FAULTS: none cannot be combined with other items")
    raise FaultError(f"FAULTS item {item!r} is unknown: use {_FORMS}")


def _read_file(path: Path) -> _Document:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FaultError(f"no fault file {path}: check FAULTS, or use {_FORMS}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise FaultError(f"cannot read the fault file {path}: {reason}") from None
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise FaultError(f"{path}{where}: not valid YAML: {problem}") from None
    if not isinstance(content, dict):
        raise FaultError(f"{path}: the top level must be a mapping with the key faults")
    try:
        return _Document.model_validate(content)
    except ValidationError as error:
        raise FaultError(f"{path}: {_one_line(error)}") from None


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    models: dict[str, type[BaseModel]] = {"faults": _Entry, "match": _Match}
    where, model = "", _Document
    for part in first["loc"][:-1]:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
        model = models.get(str(part), model)
    last = first["loc"][-1] if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(model.model_fields)
        return f"{where + ': ' if where else ''}unknown key {last!r}; allowed are {allowed}"
    where += f"[{last}]" if isinstance(last, int) else f".{last}" if where else str(last)
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return f"{where}: {message}" if where else message


# ---- from requests to links ------------------------------------------------------------------


def _resolve(
    document: _Document,
    topology: Fabric,
    rng: np.random.Generator,
    rates: tuple[RateRange, ...],
) -> FaultPlan:
    """Named links, named devices, random devices, random links: each takes what is still free."""
    entries = document.faults
    chosen: list[tuple[int, _Entry]] = []
    whole: set[int] = set()  # links with a fault that hits every flow
    matched: set[tuple[int, FlowMatch]] = set()
    for entry in entries:
        if entry.link is not None:
            link = _link(topology, entry.link)
            match = entry.match.build() if entry.match else None
            clash = link in whole or (
                (link, match) in matched if match else any(link == other for other, _ in matched)
            )
            if clash:
                raise FaultError(
                    f"link {topology.link_names[link]} is named twice: name it once, or give each "
                    "a match of its own"
                )
            matched.add((link, match)) if match else whole.add(link)
            chosen.append((link, entry))
    taken = whole | {link for link, _ in matched}

    devices: dict[int, _Entry | None] = {}
    for entry in entries:
        if entry.device is not None:
            device = _switch(topology, entry.device)
            if device in devices:
                raise FaultError(f"device {entry.device} is named twice: name it once")
            devices[device] = entry
    for entry in entries:
        if entry.devices is not None:
            free = np.setdiff1d(np.arange(topology.n_switches), list(devices))
            drawn = _draw(rng, free, entry.devices, topology, "switches")
            devices.update(dict.fromkeys(drawn, entry))
    for device, entry in devices.items():
        assert entry is not None
        every = topology.links_of(device)
        if entry.share is not None and len(every):
            count = max(1, int(len(every) * entry.share / 100 + 0.5))
            every = np.sort(rng.choice(every, count, replace=False))
        links = [link for link in every.tolist() if link not in taken]
        taken.update(links)
        chosen.extend((link, entry) for link in links)

    for entry in entries:
        count = entry.links
        if entry.percent is not None:
            count = int(topology.n_links * entry.percent / 100 + 0.5)
            if count == 0:
                least = 100 * 0.5 / topology.n_links
                raise FaultError(
                    f"{entry.percent:g}pct of {topology.n_links} links rounds to no link: use at "
                    f"least {np.ceil(least * 100) / 100:g}pct, 1links or none"
                )
        if count is not None:
            free = np.setdiff1d(np.arange(topology.n_links), list(taken))
            drawn = _draw(rng, free, count, topology, "links")
            taken.update(drawn)
            chosen.extend((link, entry) for link in drawn)

    failed = {_switch(topology, name) for name in document.failed_devices} | set(devices)
    return FaultPlan(_build(chosen, rng, rates), tuple(sorted(failed)))


def _build(
    chosen: list[tuple[int, _Entry]], rng: np.random.Generator, rates: tuple[RateRange, ...]
) -> tuple[Fault, ...]:
    chosen = sorted(chosen, key=lambda pair: pair[0])  # stable, so matches keep their order
    open_rate = [i for i, (_, e) in enumerate(chosen) if e.rate is None and e.kind != "blackhole"]
    drawn = dict(zip(open_rate, _draw_rates(rng, len(open_rate), rates), strict=True))
    return tuple(
        Fault(
            link=link,
            rate=drawn.get(i, 1.0 if entry.rate is None else entry.rate),
            kind=entry.kind,
            match=entry.match.build() if entry.match else None,
            schedule=entry.schedule,
        )
        for i, (link, entry) in enumerate(chosen)
    )


def _draw_rates(rng: np.random.Generator, n: int, rates: tuple[RateRange, ...]) -> list[float]:
    """``n`` rates in random order, stratified.

    Systematic sampling: the count of each range is its exact share rounded up or down, and on
    average over seeds the exact share, so that even a single link is drawn in proportion.
    """
    cumulative = np.cumsum([0] + [r.weight for r in rates])
    total = int(cumulative[-1])
    counts = np.diff((n * cumulative + rng.integers(total)) // total)
    low, high = (np.repeat([getattr(r, end) for r in rates], counts) for end in ("low", "high"))
    return rng.permutation(rng.uniform(low, high)).tolist()


def _draw(
    rng: np.random.Generator,
    free: npt.NDArray[np.integer],
    count: int,
    topology: Fabric,
    what: str,
) -> list[int]:
    if count > len(free):
        raise FaultError(
            f"FAULTS asks for {count} random {what}, but {topology.title} has "
            f"{len(free)} to choose from"
        )
    return rng.choice(free, count, replace=False).tolist()


def _switch(topology: Fabric, name: str) -> int:
    name = name.strip()
    try:
        return topology.switch(name)
    except TopologyError:
        near = _closest(name, topology.switch_names)
        raise FaultError(f"no switch {name!r} in {topology.title}: the nearest is {near}") from None


def _link(topology: Fabric, name: str) -> int:
    src, _, dst = (part.strip() for part in name.partition("->"))
    try:
        return topology.link(f"{src}->{dst}")
    except TopologyError:
        near_src = _closest(src, topology.switch_names)
        leaving = topology.link_dst[topology.link_src == topology.switch(near_src)]
        near_dst = _closest(dst, [topology.switch_names[i] for i in leaving])
        raise FaultError(
            f"no link {name!r} in {topology.title}: the nearest is {near_src}->{near_dst}"
        ) from None


def _closest(name: str, names: Iterable[str]) -> str:
    return difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)[0]
