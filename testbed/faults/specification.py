# SPDX-License-Identifier: Apache-2.0
"""Which links break, how much and when: ``FAULTS=10pct,tor0_0->agg0_1:0.05`` or a YAML file.

The text is a comma list of ``SELECTOR[:RATE]``:

    none                  nothing (alone)
    10pct, 0.5pct         that share of the directed fabric links, drawn at random
    6links                that many links, drawn at random
    tor0_0->agg0_1        this link
    tor0_0-agg0_1         both directions of this link; it needs no quotes in a shell
    host-links:10pct      that share of the hosts' directed links, drawn at random
    host-links:6          that many of them
    h0_0_0->tor0_0        this link of a host; h0_0_0-tor0_0 both directions
    devices:1             all links of that many switches, drawn at random; those of one switch
                          lose packets at one rate
    device:agg0_1         all links of this switch, at one rate
    devices:2@50pct       half of the links of each, drawn at random; also device:agg0_1@50pct
    device-links:1        as devices:1 or device:agg0_1, but with a rate for each link; also
                          device-links:agg0_1 and device-links:2@50pct

Counts, percentages and rates can be ranges that are drawn from uniformly, rates for each link, or
for each switch with ``devices`` and ``device``: ``1..8links:0.001..0.01``,
``devices:1..2@25..100pct``.

A YAML file holds ``faults``, a list of entries with one selector (``percent``, ``links``, ``link``,
``host_percent``, ``host_links``, ``devices`` or ``device``) and optionally ``rate``, ``kind``,
``match`` and ``schedule``, with a device also ``share``, the percentage of its links, and
``rate_of: link`` for ``device-links``:

    faults:
      - link: tor0_0->agg0_1
        kind: blackhole
        match: {dst_ip: 10.2.0.0/16, protocol: tcp, src_port: 0x1/0x1}
        schedule: [[0.1, 0.3], [0.5, 0.6]]      # seconds

Named links come first, then named devices, random devices, random links and random links of hosts;
each takes only links that are still healthy. A rate that is not given is drawn (see
``PAPER_RATES``). A switch whose rate is not given is dead, so that its links lose everything, with
a chance of one half.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.host_links import with_hosts
from testbed.faults.grammar import FORMS, Document, Entry, read_file, read_text
from testbed.faults.plan import Fault, FaultError, FaultPlan, FlowMatch


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
"""The rates of Canary's section IV-D; the weights are numbers of its 52 faulty links."""

LOW_RATES = PAPER_RATES[3:]

DEAD_SHARE = 0.5
"""The probability that a failed switch is dead, if FAULTS gives no rate.

It is this project's choice: NetBouncer, section 4.4, and Flock, section 7.2, give no number.
"""


def fault_file(text: str) -> Path | None:
    """Return the YAML file that FAULTS names, None if FAULTS lists the faults itself."""
    text = text.strip()
    return Path(text) if text.lower().endswith((".yaml", ".yml")) else None


def parse_faults(
    text: str,
    topology: Fabric,
    seed: int,
    rates: tuple[RateRange, ...] = PAPER_RATES,
    duration_s: float | None = None,
) -> FaultPlan:
    """Return the plan of faults that FAULTS describes.

    Args:
        text: A comma list, or the path of a ``.yaml`` or ``.yml`` file; see the module.
        topology: The fabric whose links fail.
        seed: Draws links, devices and rates. Equal seeds give equal plans.
        rates: Where rates that are not given are drawn from. N links fall into the ranges in
            proportion to the weights, each count rounded up or down by the draw.
        duration_s: The run's length, to refuse schedules that begin after it.

    Raises:
        FaultError: One line saying what is wrong and what would be right.
    """
    path = fault_file(text)
    document = read_file(path, duration_s) if path else Document(faults=read_text(text.strip()))
    return _resolve(document, topology, np.random.default_rng([seed, 0xFA17]), rates)


def _resolve(
    document: Document,
    topology: Fabric,
    rng: np.random.Generator,
    rates: tuple[RateRange, ...],
) -> FaultPlan:
    """Return the plan of a document: named links, named devices, random devices, random links,
    random links of hosts.

    Each takes only links that no earlier one has.
    """
    entries = [entry.settled(rng) for entry in document.faults]
    chosen = _named_links(entries, topology)
    taken = {link for link, _ in chosen}
    devices = _devices(entries, topology, rng)
    for device, entry in devices.items():
        every = topology.links_of(device)
        if entry.share is not None and len(every):
            count = max(1, int(len(every) * entry.share / 100 + 0.5))
            every = np.sort(rng.choice(every, count, replace=False))
        links = [link for link in every.tolist() if link not in taken]
        if entry.rate_of == "device":
            entry = entry.at(_one_rate(entry, rng, rates))
        taken.update(links)
        chosen.extend((link, entry) for link in links)
    for entry in entries:
        count = _count(entry.percent, entry.links, topology.n_links)
        if count is not None:
            free = np.setdiff1d(np.arange(topology.n_links), list(taken))
            drawn = _draw(rng, free, count, topology, "links")
            taken.update(drawn)
            chosen.extend((link, entry) for link in drawn)
    every = np.arange(topology.n_links, topology.n_links + 2 * topology.n_hosts)
    for entry in entries:
        count = _count(entry.host_percent, entry.host_links, len(every))
        if count is not None:
            drawn = _draw(rng, np.setdiff1d(every, list(taken)), count, topology, "links of hosts")
            taken.update(drawn)
            chosen.extend((link, entry) for link in drawn)
    failed = {named_switch(topology, name) for name in document.failed_devices} | set(devices)
    return FaultPlan(_build(chosen, rng, rates), tuple(sorted(failed)))


def _named_links(entries: Iterable[Entry], topology: Fabric) -> list[tuple[int, Entry]]:
    """Return each named link with its entry; a link may have several entries with own matches."""
    chosen: list[tuple[int, Entry]] = []
    whole: set[int] = set()  # links with a fault that hits every flow
    matched: set[tuple[int, FlowMatch]] = set()
    for entry in entries:
        if entry.link is None:
            continue
        match = entry.match.build() if entry.match else None
        for link in _links_or_hosts(topology, entry.link):
            clash = link in whole or (
                (link, match) in matched if match else any(link == other for other, _ in matched)
            )
            if clash:
                names = (topology if link < topology.n_links else with_hosts(topology)).link_names
                raise FaultError(
                    f"link {names[link]} is named twice: name it once, or give each "
                    "a match of its own"
                )
            matched.add((link, match)) if match else whole.add(link)
            chosen.append((link, entry))
    return chosen


def _links_or_hosts(topology: Fabric, name: str) -> tuple[int, ...]:
    """Return what `named_links` does, also of a link of a host."""
    try:
        return named_links(topology, name)
    except FaultError:
        ends = [part.strip() for part in re.split("->|-", name)]
        if set(ends).isdisjoint(topology.host_names):
            raise
        return named_links(with_hosts(topology), name)


def _devices(
    entries: Iterable[Entry], topology: Fabric, rng: np.random.Generator
) -> dict[int, Entry]:
    """Return the switches that fail with their entries: first the named ones, then drawn ones."""
    devices: dict[int, Entry] = {}
    for entry in entries:
        if entry.device is not None:
            device = named_switch(topology, entry.device)
            if device in devices:
                raise FaultError(f"device {entry.device} is named twice: name it once")
            devices[device] = entry
    for entry in entries:
        if entry.devices is not None:
            free = np.setdiff1d(np.arange(topology.n_switches), list(devices))
            drawn = _draw(rng, free, entry.devices, topology, "switches")
            devices.update(dict.fromkeys(drawn, entry))
    return devices


def _one_rate(entry: Entry, rng: np.random.Generator, rates: tuple[RateRange, ...]) -> float:
    """Return the loss rate of all links of a failed switch; 1 if it is dead."""
    if entry.rates is not None:
        return float(rng.uniform(*entry.rates))
    if entry.rate is not None:
        return entry.rate
    dead = max(each.high for each in rates) == 1 and rng.random() < DEAD_SHARE
    return 1.0 if dead or entry.kind == "blackhole" else draw_rates(rng, 1, rates)[0]


def _count(percent: float | None, number: int | None, n_links: int) -> int | None:
    """Return how many of ``n_links`` links an entry asks to draw, by its ``percent`` or its
    ``number``; None if it has neither."""
    if percent is None:
        return number
    count = int(n_links * percent / 100 + 0.5)
    if count == 0:
        least = 100 * 0.5 / n_links
        raise FaultError(
            f"{percent:g}pct of {n_links} links rounds to no link: use at "
            f"least {np.ceil(least * 100) / 100:g}pct, 1links or none"
        )
    return count


def _build(
    chosen: list[tuple[int, Entry]], rng: np.random.Generator, rates: tuple[RateRange, ...]
) -> tuple[Fault, ...]:
    chosen = sorted(chosen, key=lambda pair: pair[0])  # stable, so matches keep their order
    open_rate = [i for i, (_, e) in enumerate(chosen) if e.rate is None and e.kind != "blackhole"]
    drawn = dict(zip(open_rate, draw_rates(rng, len(open_rate), rates), strict=True))
    drawn |= {i: rng.uniform(*e.rates) for i, (_, e) in enumerate(chosen) if e.rates is not None}
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


def draw_rates(rng: np.random.Generator, n: int, rates: tuple[RateRange, ...]) -> list[float]:
    """Return ``n`` loss rates in random order, stratified over the ranges ``rates``.

    By systematic sampling, the count of each range is its exact share rounded up or down, and on
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


def named_switch(topology: Fabric, name: str) -> int:
    """Return the index, from 0, of a switch. Raises FaultError, which suggests the nearest name."""
    name = name.strip()
    try:
        return topology.switch(name)
    except TopologyError:
        near = _closest(name, topology.switch_names)
        raise FaultError(f"no switch {name!r} in {topology.title}: the nearest is {near}") from None


def named_links(topology: Fabric, name: str) -> tuple[int, ...]:
    """Return the indices of the directed links of a name: one of ``a->b``, two of ``a-b``.

    Names of switches may have hyphens, too: the name is read against the fabric.

    Raises:
        FaultError: There is no such link, or the name has two readings (one line).

    >>> from testbed.fabric.fat_tree import FatTree
    >>> links = named_links(FatTree(4), "tor0_0-agg0_1")
    >>> [FatTree(4).link_names[link] for link in links]
    ['tor0_0->agg0_1', 'agg0_1->tor0_0']
    """
    if "->" in name:
        return (named_link(topology, name),)
    found = {
        pair: links
        for pair in _readings(name)
        if (links := _both_ways(topology, *pair)) is not None
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        which = " or ".join(f"{src}->{dst}" for src, dst in found)
        raise FaultError(f"link {name!r} may be {which}: write one of them, in quotes")
    src, _, dst = name.strip().partition("-")
    near = topology.link_names[_nearest_link(topology, src, dst)].replace("->", "-")
    raise FaultError(f"no link {name!r} in {topology.title}: the nearest is {near}; use {FORMS}")


_LONGEST = 200
"""Characters of a name that is read as ``a-b``."""


def _readings(name: str) -> Iterator[tuple[str, str]]:
    """Yield each pair of names that ``a-b`` or ``a--b`` may stand for."""
    for at, sign in enumerate(name[:_LONGEST]):
        if sign == "-" and len(name) <= _LONGEST:
            yield name[:at].strip(), name[at + 1 :].strip()
            if name[at : at + 2] == "--":
                yield name[:at].strip(), name[at + 2 :].strip()


def _both_ways(topology: Fabric, src: str, dst: str) -> tuple[int, int] | None:
    """Return the links of both directions between two switches; None if they have none."""
    try:
        return topology.link(f"{src}->{dst}"), topology.link(f"{dst}->{src}")
    except TopologyError:
        return None


def _nearest_link(topology: Fabric, src: str, dst: str) -> int:
    """Return the link whose switches have the names that are nearest to two others."""
    near_src = topology.switch(_closest(src, topology.switch_names))
    leaving = np.flatnonzero(topology.link_src == near_src)
    names = [topology.switch_names[i] for i in topology.link_dst[leaving]]
    return int(leaving[names.index(_closest(dst, names))])


def named_link(topology: Fabric, name: str) -> int:
    """Return the index of a directed link. Raises FaultError, which suggests the nearest name."""
    src, _, dst = (part.strip() for part in name.partition("->"))
    try:
        return topology.link(f"{src}->{dst}")
    except TopologyError:
        near = topology.link_names[_nearest_link(topology, src, dst)]
        raise FaultError(f"no link {name!r} in {topology.title}: the nearest is {near}") from None


def _closest(name: str, names: Iterable[str]) -> str:
    return difflib.get_close_matches(name, list(names), n=1, cutoff=0.0)[0]
