# SPDX-License-Identifier: Apache-2.0
"""Checks that any localization method should pass, as `canary check-method` runs them.

All are on one small fabric with a known fault. The order of rows, the names and numbers of switches
and links, and how probes were cut into rows say nothing of losses, so a verdict must not hang on
them; a method must not blame without a loss, nor fail on telemetry without packets; and so on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from analysis.methods.base import Localizer, diagnose
from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry
from testbed.errors import UserError
from testbed.fabric.fat_tree import FatTree
from testbed.record.fabric_file import NumberedFabric, read_fabric

FAULTY = "tor1_0->agg1_1"
RATE, NOISE = 0.05, 1e-5
"""The loss rates of the faulty link and of all others."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Check:
    """The result of a check.

    Attributes:
        name: What the method should do, as a sentence without its end.
        failed: Why the check failed, in one line; "" if the method passed.
    """

    name: str
    failed: str


def check_method(method: Localizer) -> Iterator[Check]:
    """Yield the result of each check of a method, in the order of `CHECKS`.

    An exception of the method fails the check that it was raised in.
    """
    for name, check in CHECKS.items():
        try:
            failed = check(method, World())  # a new one, as a method may change its input
        except MissingTelemetry as error:
            failed = f"it raises MissingTelemetry, though all was measured: {error}"
        except UserError as error:
            failed = str(error)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}".splitlines()[0]
        yield Check(name, failed)


class World:
    """The fabric and the observations of the checks, as rows with the columns of their tables."""

    @cached_property
    def links(self) -> Rows:
        """Return the rows of the fabric."""
        fabric, names = self._fabric, self._fabric.switch_names
        return [
            {
                "link": link,
                "src": names[src],
                "dst": names[dst],
                "src_tier": int(fabric.tier[src]),
                "dst_tier": int(fabric.tier[dst]),
            }
            for link, (src, dst) in enumerate(zip(fabric.link_src, fabric.link_dst, strict=True))
        ]

    @cached_property
    def _fabric(self) -> FatTree:
        return FatTree(4)

    def rows(self, rate: float = RATE, noise: float = NOISE, times: int = 1) -> Rows:
        """Return observations of all kinds; ``times`` multiplies their packets."""
        fabric, rng = self._fabric, np.random.default_rng(7)
        loss = np.where(np.array(fabric.link_names) == FAULTY, rate, noise)
        rows: Rows = []
        tors = np.arange(fabric.n_tors, dtype=np.int32)
        src, dst = (end.reshape(-1) for end in np.meshgrid(tors, tors, indexing="ij"))
        apart = src != dst
        every = fabric.path_sets(src[apart], dst[apart]).paths
        names = fabric.switch_names

        def row(kind: str, path: np.ndarray, sent: int, **more: Any) -> dict[str, Any]:
            lost = int(rng.binomial(sent * times, 1 - np.prod(1 - loss[path])))
            nodes = [
                names[fabric.link_src[path[0]]],
                *(names[fabric.link_dst[link]] for link in path),
            ]
            return {"kind": kind, "nodes": nodes, "sent": sent * times, "lost": lost, **more}

        paths = [every.take(np.array([i])).links for i in range(len(every))]
        rows += [row("active", path, 400) for path in paths]
        segments = fabric.segments("tor+core").paths
        for epoch in range(3):
            rows += [
                row("segment", segments.take(np.array([i])).links, 1500, epoch=epoch)
                for i in range(len(segments))
            ]
        for number in rng.integers(len(paths), size=800).tolist():
            flow = row("passive", paths[number], int(rng.integers(50, 800)))
            ends = {"src": flow["nodes"][0], "dst": flow["nodes"][-1]}
            rows.append(flow | ends)
            if flow["lost"]:
                traced = {"kind": "connection", "nodes": flow["nodes"], **ends}
                rows.append(traced | {"retransmissions": flow["lost"]})
        return rows

    def read(self, rows: Rows, links: Rows | None = None) -> Telemetry:
        """Return rows as methods read them."""
        fabric = read_fabric(pa.Table.from_pylist(self.links if links is None else links))
        return self.on(fabric, rows)

    def on(self, fabric: NumberedFabric, rows: Rows) -> Telemetry:
        """Return the observations of a fabric."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {name: [row.get(name) for row in rows] for name in names}
        columns["nodes"] = [None if path is None else [path] for path in columns["nodes"]]
        return read_observations(pa.table(columns), fabric)

    @cached_property
    def telemetry(self) -> Telemetry:
        """Return the observations with the fault."""
        return self.read(self.rows())


def _blamed(method: Localizer, telemetry: Telemetry) -> list[str]:
    return _names(diagnose(method, telemetry), telemetry)


def _names(diagnosis: Diagnosis, telemetry: Telemetry) -> list[str]:
    names = telemetry.topology.link_names
    return sorted(names[link] for link in diagnosis.flagged.tolist())


def _differs(before: Sequence[str], after: Sequence[str]) -> str:
    """Return what two verdicts disagree on; "" if they agree."""
    gone, new = sorted({*before} - {*after}), sorted({*after} - {*before})
    if not gone and not new:
        return ""
    parts = [f"no longer blames {', '.join(gone[:4])}"] * bool(gone)
    parts += [f"blames {', '.join(new[:4])}, too"] * bool(new)
    return "it " + " and ".join(parts)


def _valid(method: Localizer, world: World) -> str:
    found, n = diagnose(method, world.telemetry), world.telemetry.topology.n_links
    if not isinstance(method.name, str) or not method.name:
        return "its name is no text"
    flagged = np.asarray(found.flagged)
    if flagged.ndim != 1 or (np.diff(flagged) <= 0).any():
        return "flagged must be link numbers, ascending, each once"
    for name in ("success", "score"):
        if np.shape(getattr(found, name)) != (n,):
            return f"{name} must have {n} values, one for each link"
    if not np.isfinite(found.score).all():
        return "a score is not a finite number"
    known = found.success[~np.isnan(found.success)]
    if ((known < 0) | (known > 1)).any():
        return "success has a value that is not from 0 to 1"
    if min(method.telemetry_bytes(world.telemetry), method.probe_packets(world.telemetry)) < 0:
        return "its costs are negative"
    return ""


def _finds(method: Localizer, world: World) -> str:
    blamed = _blamed(method, world.telemetry)
    if FAULTY in blamed:
        return ""
    return f"it blames {', '.join(blamed[:4]) or 'nothing'}, and not {FAULTY}, which loses 5 %"


def _ranks(method: Localizer, world: World) -> str:
    found = diagnose(method, world.telemetry)
    if np.ptp(found.score) == 0:
        return "all links have the same score, so that it has no ranking: give score or success"
    blamed = np.zeros(len(found.score), np.bool_)
    blamed[found.flagged] = True
    if blamed.any() and not blamed.all() and found.score[blamed].max() < found.score[~blamed].max():
        return "a link that it does not blame has a higher score than all that it blames"
    return ""


def _repeats(method: Localizer, world: World) -> str:
    one, two = (diagnose(method, world.telemetry) for _ in range(2))
    if not np.array_equal(one.score, two.score, equal_nan=True):
        return "scores differ between two calls on the same telemetry"
    return _differs(*(_names(each, world.telemetry) for each in (one, two)))


def _keeps_its_input(method: Localizer, world: World) -> str:
    before = copy.deepcopy(_arrays(world.telemetry))
    diagnose(method, world.telemetry)
    for name, values in _arrays(world.telemetry).items():
        if not np.array_equal(before[name], values):
            return f"it changes {name} of the telemetry"
    return ""


def _arrays(part: Any, name: str = "telemetry") -> dict[str, np.ndarray]:
    """Return all arrays of a dataclass and of those in it, by name."""
    if isinstance(part, np.ndarray):
        return {name: part}
    found: dict[str, np.ndarray] = {}
    if is_dataclass(part) and not isinstance(part, type):
        for each in fields(part):
            found |= _arrays(getattr(part, each.name), f"{name}.{each.name}")
    return found


def _ignores_order(method: Localizer, world: World) -> str:
    rows = world.rows()
    order = np.random.default_rng(1).permutation(len(rows)).tolist()
    shuffled = world.read([rows[i] for i in order])
    return _differs(_blamed(method, world.telemetry), _blamed(method, shuffled))


def _ignores_names(method: Localizer, world: World) -> str:
    """Give switches other names, of another order, and links other numbers."""
    names = sorted({link["src"] for link in world.links})
    new = {name: f"s{len(names) - i:03}" for i, name in enumerate(names)}
    old = {value: key for key, value in new.items()}
    links = [
        link | {"link": 1000 - 7 * link["link"], "src": new[link["src"]], "dst": new[link["dst"]]}
        for link in world.links
    ]
    rows = [
        row
        | {"nodes": [new[node] for node in row["nodes"]]}
        | {end: new[row[end]] for end in ("src", "dst") if end in row}
        for row in world.rows()
    ]
    telemetry = world.read(rows, links[::-1])
    blamed = [name.split("->") for name in _blamed(method, telemetry)]
    after = sorted(f"{old[src]}->{old[dst]}" for src, dst in blamed)
    return _differs(_blamed(method, world.telemetry), after)


def _ignores_cuts(method: Localizer, world: World) -> str:
    """Cut each row of probes and each count of a segment into two."""
    rows: Rows = []
    for row in world.rows():
        if row["kind"] not in ("active", "segment"):
            rows.append(row)
            continue
        sent, lost = row["sent"] // 3, row["lost"] // 2
        rows.append(row | {"sent": sent, "lost": min(sent, lost)})
        rows.append(row | {"sent": row["sent"] - sent, "lost": row["lost"] - min(sent, lost)})
    return _differs(_blamed(method, world.telemetry), _blamed(method, world.read(rows)))


def _blames_no_healthy_fabric(method: Localizer, world: World) -> str:
    try:
        blamed = _blamed(method, world.read(world.rows(rate=0.0, noise=0.0)))
    except MissingTelemetry:  # only what lost packets is reported to it
        return ""
    return f"it blames {', '.join(blamed[:4])}, though no packet was lost" if blamed else ""


def _stays_with_more_packets(method: Localizer, world: World) -> str:
    if FAULTY not in _blamed(method, world.telemetry):
        return ""
    blamed = _blamed(method, world.read(world.rows(times=10)))
    if FAULTY in blamed:
        return ""
    return f"with ten times as many packets at the same rates it no longer blames {FAULTY}"


def _bears_emptiness(method: Localizer, world: World) -> str:
    rows = [
        row | {name: 0 for name in ("sent", "lost") if name in row}
        for row in world.rows()
        if row["kind"] != "connection"
    ]
    telemetry = world.read(rows)
    whole = world.telemetry.connections
    assert whole is not None
    nothing = np.zeros(0, np.int64)
    none = replace(
        whole,
        src_tor=whole.src_tor[:0],
        dst_tor=whole.dst_tor[:0],
        lost=whole.lost[:0],
        paths=whole.paths.take(nothing),
        complete=whole.complete[:0],
        watched=None,
    )
    try:
        blamed = _blamed(method, replace(telemetry, connections=none))
    except MissingTelemetry:
        return ""
    return f"it blames {', '.join(blamed[:4])} without a packet" if blamed else ""


def _says_what_it_lacks(method: Localizer, world: World) -> str:
    try:
        diagnose(method, Telemetry(world.telemetry.topology, "given"))
    except MissingTelemetry:
        return ""
    return "it does not raise MissingTelemetry where nothing was measured: use Telemetry.need"


def _blames_ties_alike(method: Localizer, world: World) -> str:
    """Only the path over the faulty link and its next link is probed, so both are alike."""
    rows = [row for row in world.rows() if row["kind"] != "connection"]
    own = FAULTY.split("->")
    kept = [row for row in rows if row["nodes"][:2] == own and len(row["nodes"]) == 3]
    other = [row for row in rows if not {*own} & {*row["nodes"]}]
    telemetry = world.read([*kept, *other])
    try:
        found = diagnose(method, telemetry)
    except MissingTelemetry:
        return ""
    classes = found.equivalent
    if classes is None:
        return "its diagnosis has no classes"
    flagged = np.zeros(len(classes), np.bool_)
    flagged[found.flagged] = True
    of_device = np.isin(telemetry.topology.link_src, found.devices)
    of_device |= np.isin(telemetry.topology.link_dst, found.devices)
    if found.native == "undirected" or of_device.any():
        return ""
    for each in np.unique(classes[flagged]).tolist():
        if not flagged[classes == each].all():
            return "it blames one of several links that nothing tells apart"
    return ""


CHECKS: Mapping[str, Callable[[Localizer, World], str]] = {
    "returns a valid diagnosis": _valid,
    "blames a link that loses 5 %": _finds,
    "ranks links by their scores": _ranks,
    "gives the same verdict again": _repeats,
    "leaves the telemetry as it is": _keeps_its_input,
    "does not hang on the order of rows": _ignores_order,
    "does not hang on names and numbers": _ignores_names,
    "does not hang on how probes are cut into rows": _ignores_cuts,
    "keeps its verdict with more packets": _stays_with_more_packets,
    "blames nothing where nothing is lost": _blames_no_healthy_fabric,
    "bears telemetry without packets": _bears_emptiness,
    "blames links alike that nothing tells apart": _blames_ties_alike,
    "says what it lacks": _says_what_it_lacks,
}
"""The checks by name."""
