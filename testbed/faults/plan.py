# SPDX-License-Identifier: Apache-2.0
"""The plan of a run's faults, which is the ground truth that methods are scored against, and the
loss rates of healthy links: ``NOISE=0.0001`` on all, ``NOISE=0..0.0001`` drawn for each."""

from __future__ import annotations

import ipaddress
import itertools
import math
import operator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import yaml

from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.host_links import with_hosts

Kind = Literal["drop", "blackhole", "corrupt"]
_KINDS = get_args(Kind)

MATCH_BITS = {"src_ip": 32, "dst_ip": 32, "src_port": 16, "dst_port": 16, "protocol": 8}


class FaultError(UserError):
    """FAULTS cannot be understood, or asks for what the topology does not have. One line."""


@dataclass(frozen=True)
class Ternary:
    """A ternary match: it matches x if ``x & mask == value``.

    Raises:
        FaultError: A bit of ``value`` lies outside ``mask``, so that nothing could match.
    """

    value: int
    mask: int

    def __post_init__(self) -> None:
        for name in ("value", "mask"):
            object.__setattr__(self, name, _whole(f"a match's {name}", getattr(self, name)))
        if self.value & ~self.mask:
            raise FaultError(
                f"{self.value:#x}/{self.mask:#x} can never match: the value has bits outside its "
                "mask"
            )


@dataclass(frozen=True)
class FlowMatch:
    """The flows that a fault hits; a field that is None matches everything.

    Raises:
        FaultError: No field is given, one is no `Ternary`, or does not fit the header's bits.
    """

    src_ip: Ternary | None = None
    dst_ip: Ternary | None = None
    src_port: Ternary | None = None
    dst_port: Ternary | None = None
    protocol: Ternary | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, field) is None for field in MATCH_BITS):
            raise FaultError(f"match is empty: give one of {', '.join(MATCH_BITS)}")
        for field, bits in MATCH_BITS.items():
            ternary = getattr(self, field)
            if ternary is None:
                continue
            if not isinstance(ternary, Ternary):
                raise FaultError(f"match {field}={ternary!r}: give a Ternary(value, mask)")
            if ternary.mask >> bits:
                raise FaultError(f"match {field}: {ternary.mask:#x} does not fit {bits} bits")


@dataclass(frozen=True)
class Fault:
    """A fault of a directed link.

    Attributes:
        link: Directed link id; those of hosts follow those of the fabric
            (`testbed.fabric.host_links`).
        rate: The share of the matching packets that is lost, in (0, 1]; 1 for a black hole.
        kind: ``drop`` at random, ``blackhole`` for every packet, or ``corrupt``: the next switch
            discards the packet.
        match: The flows it hits, or None for all.
        schedule: Disjoint ascending (start, end) in seconds; empty for always.

    Raises:
        FaultError: A value makes no sense.
    """

    link: int
    rate: float
    kind: Kind = "drop"
    match: FlowMatch | None = None
    schedule: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "link", _whole("a fault's link", self.link))
        object.__setattr__(self, "rate", checked_rate(self.rate))
        check_kind(self.kind, self.rate)
        if self.match is not None and not isinstance(self.match, FlowMatch):
            raise FaultError(f"match {self.match!r}: give a FlowMatch, or None for all flows")
        if not isinstance(self.schedule, tuple) or self.schedule:
            object.__setattr__(self, "schedule", checked_schedule(self.schedule))

    def overlaps(self, other: Fault) -> bool:
        """Return True if both hit the same flows of the same link at some time."""
        if self.link != other.link or self.match != other.match:
            return False
        if not self.schedule or not other.schedule:
            return True
        mine, theirs = iter(self.schedule), iter(other.schedule)  # both ascend
        one, two = next(mine, None), next(theirs, None)
        while one and two:
            if one[0] < two[1] and two[0] < one[1]:
                return True
            if one[1] <= two[1]:
                one = next(mine, None)
            else:
                two = next(theirs, None)
        return False


@dataclass(frozen=True)
class FaultPlan:
    """The truth: all faults, ascending by link, and the switches that failed as a whole.

    Raises:
        FaultError: Two faults hit the same flows of a link at the same time, or a value is of
            another type.
    """

    faults: tuple[Fault, ...] = ()
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("faults", "devices"):
            try:
                object.__setattr__(self, name, tuple(getattr(self, name)))
            except TypeError:
                raise FaultError(f"{name} of a FaultPlan must be a tuple") from None
        devices = tuple(_whole("a failed device", device) for device in self.devices)
        object.__setattr__(self, "devices", devices)
        by_link: dict[int, list[Fault]] = {}
        for fault in self.faults:
            if not isinstance(fault, Fault):
                raise FaultError(f"a FaultPlan must contain Faults, not {type(fault).__name__}")
            same = by_link.setdefault(fault.link, [])
            if any(fault.overlaps(other) for other in same):
                raise FaultError(
                    f"two faults affect the same flows of link {fault.link} at the same time: "
                    "combine them, or give each a different match or schedule"
                )
            same.append(fault)

    def check(self, topology: Fabric, duration_s: float) -> None:
        """Check that the plan can happen in a run.

        Raises:
            FaultError: A link or switch is not of the fabric, or a fault is scheduled for after
                the run's end.
        """
        for what, numbers, n in (
            ("link", (f.link for f in self.faults), topology.n_links + 2 * topology.n_hosts),
            ("switch", self.devices, topology.n_switches),
        ):
            wrong = next((number for number in numbers if number >= n), None)
            if wrong is not None:
                raise FaultError(
                    f"there is no {what} {wrong} in {topology.title}: they are 0 to {n - 1}"
                )
        names = self.whole(topology).link_names
        for fault in self.faults:
            if fault.link >= topology.n_links and fault.kind == "corrupt":
                raise FaultError(
                    f"the fault of {names[fault.link]} corrupts packets, but no switch is behind "
                    "it in both directions that would discard them: use kind drop"
                )
            if fault.schedule and fault.schedule[-1][0] >= duration_s:
                raise FaultError(
                    f"the fault of {names[fault.link]} "
                    f"{schedule_problem(fault.schedule[-1], duration_s)}"
                )

    def whole(self, topology: Fabric, host_meters: bool = False) -> Fabric:
        """Return the fabric of the links that get a verdict: with its hosts, if a link of one is
        faulty or has meters."""
        if host_meters or (self.links >= topology.n_links).any():
            return with_hosts(topology)
        return topology

    @property
    def links(self) -> npt.NDArray[np.int32]:
        """Return the faulty directed links, sorted and unique, int32[]."""
        return np.unique(np.array([fault.link for fault in self.faults], np.int32))

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each fault: ``link`` (id), ``rate``, ``kind``, ``match``,
        ``schedule``.

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
        """Return the text of a fault file that `specification.parse_faults` reads as this plan."""
        entries = []
        names = self.whole(topology).link_names
        for record in self.to_records():
            record["link"] = names[record["link"]]
            entries.append({key: value for key, value in record.items() if value})
        devices = [topology.switch_names[device] for device in self.devices]
        return yaml.safe_dump({"faults": entries, "failed_devices": devices}, sort_keys=False)


def schedule_problem(span: tuple[float, float], duration_s: float) -> str:
    """Return what is wrong with a span of a schedule that begins after the run's end."""
    return (
        f"is scheduled for {span[0]:g} to {span[1]:g} s, but the run ends at {duration_s:g} s: "
        "schedule it earlier, or use more EPOCHS"
    )


def _whole(what: str, value: Any) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise FaultError(f"{what} is {value!r}: use a whole number of at least 0")
    return number


def _number(value: Any) -> float:
    """Return a number as a float, nan for anything else."""
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def checked_rate(value: Any) -> float:
    """Return a loss rate as a float. Raises FaultError if it is outside (0, 1]."""
    rate = _number(value)
    if not 0 < rate <= 1:
        text = repr(value) if math.isnan(rate) else f"{rate:g}"
        raise FaultError(f"rate {text} is outside (0, 1]: a loss rate of 5 % is 0.05")
    return rate


def check_kind(kind: str, rate: float | None) -> None:
    """Check a kind, and that it goes with a loss rate, which is None if it is to be drawn.

    Raises:
        FaultError: The kind is unknown, or a black hole has a rate below 1.
    """
    if kind not in _KINDS:
        raise FaultError(f"kind {kind!r} is unknown: use {', '.join(_KINDS)}")
    if kind == "blackhole" and rate not in (None, 1.0):
        raise FaultError(
            f"a blackhole drops everything, not {rate:g} of it: use rate 1, or kind drop"
        )


def checked_schedule(schedule: Any) -> tuple[tuple[float, float], ...]:
    """Return a schedule as (start, end) pairs of floats, in seconds.

    Raises:
        FaultError: The pairs are not ascending and disjoint, or a time is negative or infinite.
    """
    try:
        spans = tuple((_number(start), _number(end)) for start, end in schedule)
    except (TypeError, ValueError):
        spans = ((math.nan, math.nan),)
    times = [0.0, *(time for span in spans for time in span)]
    ascending = all(a < b for a, b in itertools.pairwise(times[1:]))
    if not (ascending and all(0 <= time < math.inf for time in times)):
        raise FaultError(
            "schedule must have (start, end) pairs in seconds, not negative, ascending and disjoint"
        )
    return spans


def _match_text(match: FlowMatch) -> dict[str, str]:
    text = {}
    for field, bits in MATCH_BITS.items():
        ternary: Ternary | None = getattr(match, field)
        if ternary is None:
            continue
        if bits == 32:
            value, mask = (ipaddress.IPv4Address(n) for n in (ternary.value, ternary.mask))
            text[field] = f"{value}/{mask}"
        else:
            text[field] = f"{ternary.value:#x}/{ternary.mask:#x}"
    return text


def noise_range(text: str) -> tuple[float, float]:
    """Return the lowest and the highest loss rate that NOISE describes; equal for a single rate.

    Raises:
        FaultError: It is neither a rate nor a range of rates. One line.
    """
    low, dots, high = text.partition("..")
    try:
        rates = float(low), float(high if dots else low)
    except ValueError:
        raise FaultError(
            f"NOISE={text} is not a loss rate: use 0.0001, or 0..0.0001 to draw a rate for each "
            "link"
        ) from None
    if not 0 <= rates[0] <= rates[1] <= 1:
        raise FaultError(
            f"NOISE={text} is out of range: use rates from 0 to 1, the lower one first"
        )
    return rates


def noise_rates(text: str, n_links: int, seed: int) -> npt.NDArray[np.float64]:
    """Return the loss rate of each directed link while it is healthy, float64[n_links].

    A single rate applies to every link. From a range, the rate of each link is drawn uniformly
    (Flock, section 6.3). Equal seeds give equal rates, with packets and without.

    Raises:
        FaultError: See `noise_range`.
    """
    low, high = noise_range(text)
    if low == high:
        return np.full(n_links, low)
    return np.random.default_rng([seed, 0x2015E]).uniform(low, high, n_links)
