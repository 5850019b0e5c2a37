# SPDX-License-Identifier: Apache-2.0
"""Run methods on a run's telemetry, and report their scores as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.evaluation.budgets import fed, measured_lines, missed_lines, starving
from analysis.evaluation.by_epoch import by_epoch_line
from analysis.evaluation.columns import BENCHES, Cell, cells, columns
from analysis.evaluation.metrics import score
from analysis.methods.base import Localizer, Method, diagnose
from analysis.methods.diagnosis import UNRANKED, Diagnosis
from analysis.methods.domain import World
from analysis.methods.registry import BuiltMethod
from analysis.telemetry.telemetry import Telemetry
from testbed.fabric.clos import Fabric
from testbed.fabric.host_links import HostFabric
from testbed.fabric.names import plain, some_of
from testbed.measurements.measurement import ENOUGH
from testbed.record.documents import Measured

_FIGURES = (
    "precision",
    "recall",
    "f1",
    "accuracy",
    "class_f1",
    "best_f1",
    "true_positives",
    "false_positives",
    "false_negatives",
    "classes",
)
COSTS = 0.1
"""The F1 that a threshold may cost before a line says so."""
_SLOW = 1.05  # from this on a slowdown is said
_WIDTH = 80  # of the table, also on wider terminals
_NAME = 18  # the least columns of the names; longer ones are wrapped


def run_methods(
    telemetry: Telemetry,
    methods: Iterable[BuiltMethod],
    progress: Callable[[str], None],
) -> dict[str, Diagnosis]:
    """Return the diagnosis of each method by name; ``progress`` is called with the name before a
    method starts.

    Raises:
        analysis.telemetry.telemetry.MissingTelemetry: A method needs what the run did not measure.
    """
    found = {}
    for each in methods:
        progress(each.name)
        found[each.name] = diagnose(each.method, telemetry)
    return found


def diagnosis_columns(diagnosis: Diagnosis, topology: Fabric) -> Mapping[str, Any]:
    """Return a diagnosis as the columns of a table with a row for each directed link; the most
    suspicious link has rank 1."""
    links = np.arange(topology.n_links)
    rank = np.empty(len(links), np.int32)
    rank[np.lexsort((links, -diagnosis.score))] = links + 1
    stage = np.zeros(len(links), np.int32)
    for number, flagged in reversed(list(enumerate(diagnosis.stages, start=1))):
        stage[flagged] = number
    return {
        "link": topology.link_names,
        "flagged": np.isin(links, diagnosis.flagged),
        "state": diagnosis.state,
        "class": links.astype(np.int32) if diagnosis.equivalent is None else diagnosis.equivalent,
        "success": diagnosis.success,
        "score": diagnosis.score,
        "rank": rank,
        "stage": stage,
    }


def figures(
    diagnoses: Mapping[str, Diagnosis],
    methods: Iterable[BuiltMethod],
    telemetry: Telemetry,
    truth: np.ndarray,
    lost: np.ndarray | None = None,
    use: Mapping[str, Measured] | None = None,
    unmet: Sequence[int] | np.ndarray = (),
    world: World | None = None,
) -> dict[str, Any]:
    """Return the ``methods`` part of ``summary.json``, with the missed and wrong links by name.

    Methods are in the order of `BENCHES`, those of a bench in that of ``diagnoses``.

    Args:
        diagnoses: Diagnoses by the names of methods.
        methods: The methods that diagnosed; there may be others.
        truth: Ids of the directed links with an injected fault.
        lost: Ids of the links that really lost packets, if known; they are scored as ``lost``.
        use: What the measurements got of what they asked for, see `analysis.evaluation.budgets`.
        unmet: The links with a fault that no packet met, which nothing can observe.
        world: What is known of the run besides its faulty links.
    """
    topology = telemetry.topology
    names = {
        "directed": topology.link_names,
        "undirected": [name.replace("->", "--") for name in topology.link_names[::2]],
    }
    result = {}
    built = {each.name: each for each in methods}
    for name, diagnosis in diagnoses.items():
        method = built[name].method
        entry: dict[str, Any] = {"bench": built[name].bench, "native": diagnosis.native}
        if own := built[name].own_name:
            entry["own_name"] = own
        if UNRANKED in diagnosis.remarks:
            entry["unranked"] = True
        scored = diagnosis
        if len(unmet) and (tells := diagnosis.tells) is not None:
            observed = tells.observed.copy()
            other = np.asarray(unmet, np.int64) ^ 1  # of an undirected link nothing faulty is met
            observed[[*unmet, *np.setdiff1d(other, truth)]] = False
            scored = replace(diagnosis, tells=replace(tells, observed=observed))
        entry |= _scores(scored, truth, topology, names)
        if lost is not None:
            entry["lost"] = _scores(scored, lost, topology, names)
        if isinstance(topology, HostFabric):
            n = topology.switches_only.n_links
            entry["fabric"] = _scores(_below(scored, n), truth[truth < n], topology, names)
        if ties := diagnosis.ties:
            shift = diagnosis.native == "undirected"
            own = names[diagnosis.native]
            entry["ties"] = [[own[link >> shift] for link in each] for each in ties]
        if diagnosis.tells is not None:
            entry["observed"] = int(diagnosis.tells.observed.sum())
        entry["seconds"] = round(diagnosis.seconds, 4)
        entry["telemetry_bytes"] = method.telemetry_bytes(telemetry)
        entry["probe_packets"] = method.probe_packets(telemetry)
        remarks = [*diagnosis.remarks, *_fed(entry, method, telemetry, use or {})]
        here = world or World(topology.n_links, len(np.unique(truth)))
        remarks += [*_limits(entry, method, telemetry, here)]
        if remarks:
            entry["remarks"] = remarks
        entry["parameters"] = built[name].parameters
        entry["parameters_from"] = built[name].origin
        result[name] = entry
    order = list(BENCHES)
    return dict(sorted(result.items(), key=lambda method: order.index(method[1]["bench"])))


def _below(diagnosis: Diagnosis, n_links: int) -> Diagnosis:
    """Return a diagnosis that says nothing of the links from the number ``n_links`` on."""
    tells, flagged = diagnosis.tells, diagnosis.flagged
    assert tells is not None
    observed = tells.observed & (np.arange(len(tells.observed)) < n_links)
    return replace(
        diagnosis, flagged=flagged[flagged < n_links], tells=replace(tells, observed=observed)
    )


def threshold_line(f1: float | None, best: float | None) -> str:
    """Return a sentence if the best cut of a method's ranking has an F1 of more than `COSTS` above
    its own; otherwise ""."""
    if f1 is None or best is None or not best > f1 + COSTS:
        return ""
    return (
        f"its threshold costs {best - f1:.2f} of F1: the best cut of its own ranking has {best:.2f}"
    )


def _limits(
    entry: Mapping[str, Any], method: Localizer, telemetry: Telemetry, world: World
) -> Iterator[str]:
    """Yield a sentence if a run is outside of the domain of a method, and one if another threshold
    would do much better."""
    if isinstance(method, Method) and (line := method.outside(telemetry, world)):
        yield line
    own = entry[entry["native"]]
    if line := threshold_line(own["f1"], own["best_f1"]):
        yield line


def _fed(
    entry: dict[str, Any],
    method: Localizer,
    telemetry: Telemetry,
    use: Mapping[str, Measured],
) -> list[str]:
    """Add to ``entry`` what a method got of what it asked for; return a list with a sentence if it
    is starved, otherwise an empty list."""
    if not use or (found := fed(method, telemetry, use)) is None:
        return []
    names, share, least = found
    starved = share < ENOUGH
    entry |= {"measurements": list(names), "fed": round(share, 4), "starved": starved}
    return [starving(least, use)] if starved else []


def parameters_line(origins: Mapping[str, str]) -> str:
    """Return a line that says where the methods' parameters come from: ``parameters: paper (flock,
    007); default``. The most frequent origin comes last, without the methods' names.

    Args:
        origins: The origin by method, see `analysis.methods.parameters.Parameters.origin`.
    """
    groups: dict[str, list[str]] = {}
    for name, origin in origins.items():
        groups.setdefault(origin, []).append(name)
    *few, most = sorted(groups.items(), key=lambda group: len(group[1]))
    parts = [f"{origin} ({', '.join(names)})" for origin, names in few]
    return f"parameters: {'; '.join([*parts, most[0]])}"


def _scores(
    diagnosis: Diagnosis, truth: np.ndarray, topology: Fabric, names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for terms, value in score(
        diagnosis.flagged, truth, topology, diagnosis.tells, diagnosis.score
    ).items():
        fields = asdict(value)
        own = {figure: fields[figure] for figure in _FIGURES}
        found[terms] = {name: None if own[name] != own[name] else own[name] for name in own}
        for which in ("missed", "wrong", "unobserved"):
            found[terms][which] = [names[terms][link] for link in fields[which]]
    return found


def render(summary: Mapping[str, Any], console: Console) -> None:
    """Print all of a run's summary: its packets and faults, a row of scores for each method, over
    directed or undirected links as the method tells them apart, and the legend.

    `analysis.evaluation.screen` prints what one wants to see first.
    """
    if not console.is_terminal:
        console = Console(file=console.file, width=120)
    console.print(_headline(summary))
    width = min(console.width, _WIDTH)
    console.print(_table(summary, width), width=width)
    console.print(_details(summary))


def headline(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Return two lines: the fabric and faults of a run, and how many packets were sent and
    dropped."""
    devices = [failed_device(*each) for each in summary.get("failed_devices", {}).items()]
    failed = f", failed {some_of(devices)}" if devices else ""
    packets = summary["conservation"]
    drops = f"{packets['fault_drops']:,} by faults, {packets['queue_drops']:,} by queues"
    return (
        f"{_fabric(summary)} seed {summary['seed']} backend {plain(summary['backend'])}: "
        f"{len(summary['faulty_links'])} faulty directed links{failed}",
        f"{packets['sent']:,} packets, {summary['packet_hops']:,} packet-hops, "
        f"{summary['wall_seconds']:.1f} s; dropped {drops}, "
        f"{packets['ttl_drops']:,} expired (traceroutes)",
    )


def failed_device(device: str, rates: Sequence[float]) -> str:
    """Return a failed device as text: ``agg0_1 (dead)``, or with the loss rates of its links."""
    least, most = (f"{100 * rate:.3g}" for rate in rates)
    how = "dead" if min(rates) == 1 else f"{least} %" if least == most else f"{least} to {most} %"
    return f"{plain(device)} ({how})"


def _headline(summary: Mapping[str, Any]) -> RenderableType:
    what, packets = headline(summary)
    capture = summary.get("capture")
    replayed = [Text(capture_line(capture))] if capture else []
    troubles = [Text(plain(f"degraded: {what}"), style="red") for what in summary["degraded"]]
    events = [Text(plain(f"event at {what}")) for what in summary.get("events", ())]
    counted = [Text(metered_line(summary["metered"]))] if "metered" in summary else []
    flows = [Text(plain(summary["flow_sizes"]))] if summary.get("flow_sizes") else []
    where, colon, count = what.rpartition(": ")
    return Group(
        Text.assemble((plain(summary["scenario"]), "bold"), f"  {where}{colon}", (count, "bold")),
        Text(packets),
        *flows,
        *counted,
        *replayed,
        *events,
        *map(Text, slowdown_lines(summary)),
        *troubles,
    )


def slowdown_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line if the clock of a run on real packets was slower than real time, else none."""
    factor = summary.get("slowdown", 1.0)
    if factor < _SLOW:
        return []
    return [
        f"slowed down {factor:.2f} times: the machine was busy, and the clocks of hosts, switches' "
        "epochs and controller waited for it together"
    ]


def metered_line(metered: Mapping[str, int]) -> str:
    """Return a line that says how many packets Canary's meters counted, and how many were lost."""
    return (
        f"Canary's meters: {metered['packets']:,} packets on {metered['segments']:,} segments, "
        f"each once on every segment of its path; {metered['lost']:,} lost"
    )


def capture_line(capture: Mapping[str, Any]) -> str:
    """Return a line on a capture's frames: how many were sent, changed or refused, and why
    (`testbed.traffic.replay.Account`)."""
    refused = sorted(capture["refused"].items(), key=lambda reason: -reason[1])
    changed = {
        "IPv6 sent as IPv4": capture["as_ipv4"],
        "sent shortened to a frame": capture["shortened"],
        "without a time, sent with their neighbours": capture.get("timeless", 0),
    }
    pauses, factor = capture.get("pauses", 0), capture.get("factor", 1)
    pause = f"{pauses:,} pauses of together" if pauses > 1 else "a pause of"
    cut = "cut out" if capture.get("fit") else "kept: TRAFFIC=...:fit cuts out pauses"
    timing = [
        *([f"{pause} {capture['pauses_s']:,.1f} s {cut}"] if pauses else []),
        *([f"stretched {factor:,.3g} times"] if factor > 1 else []),
        *([f"compressed {1 / factor:,.3g} times"] if factor < 1 else []),
    ]
    share = "" if capture["share"] == 1 else f" ({100 * capture['share']:.2g} % of the file)"
    parts = [
        f"capture {plain(capture['file'])} sha256 {capture['sha256'][:12]}: "
        f"{capture['frames']:,} frames read{share}, {capture['replayed']:,} replayed",
        *(f"{n:,} {plain(reason)}" for reason, n in refused),
        *(f"{n:,} {how}" for how, n in changed.items() if n),
        *timing,
    ]
    return ", ".join(parts)


def _fabric(summary: Mapping[str, Any]) -> str:
    title = plain(summary.get("topology", ""))
    return title if title and not title.endswith(" fat-tree") else f"K={summary['k']}"


def _table(summary: Mapping[str, Any], width: int) -> Table:
    """Return the table of methods, with a block of rows for each bench, for a terminal of ``width``
    columns. Long names are wrapped; columns that do not fit are left out from the right."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, header_style="bold")
    first, *others = columns(summary)
    blocks = cells(summary)
    every = [row for rows in blocks.values() for row in rows]
    table.add_column(first.title, overflow="fold")
    used, fits = min(_NAME, max((len(row[0].text) for row in every), default=0)), 0
    for number, column in enumerate(others, start=1):
        used += 1 + max([len(column.title), *(len(row[number].text) for row in every)])
        if used > width:
            break
        table.add_column(column.title, justify="right", no_wrap=True)
        fits = number
    for heading, rows in blocks.items():
        add_heading(table, heading)
        for name, *figures_ in rows:
            shown = (Text(c.text, style=_colour(c)) for c in figures_[:fits])
            table.add_row(Text(name.text), *shown)
    return table


def add_heading(table: Table, heading: str) -> None:
    """Begin a block of a table: add a line across it, and a row with the heading alone."""
    table.add_section()
    table.add_row(Text(f"{heading}:", style="italic"))


def _details(summary: Mapping[str, Any]) -> RenderableType:
    meanings = [f"{c.title}: {c.meaning}" for c in columns(summary)[1:]]
    lines = [Text(columns(summary)[0].meaning + "\n" + "; ".join(meanings), style="dim")]
    origins = {
        n: e["parameters_from"] for n, e in summary["methods"].items() if "parameters_from" in e
    }
    if origins:
        lines.append(Text(plain(parameters_line(origins)), style="dim"))
    lines += [Text(plain(line), style="dim") for line in measured_lines(summary)]
    lines += [Text(plain(line), "yellow") for line in missed_lines(summary)]
    for name, entry in summary["methods"].items():
        own = entry[entry["native"]]
        parts = [f"{what} {some_of(own[what])}" for what in ("missed", "wrong") if own[what]]
        if unseen := own.get("unobserved", ()):
            every = len(unseen) + own["true_positives"] + own["false_negatives"]
            names = some_of(unseen)
            parts.append(f"not observed: {len(unseen)} of the {every} faulty links: {names}")
        if ties := entry.get("ties", ()):
            parts.append(f"cannot tell apart {some_of([' or '.join(each) for each in ties])}")
        if parts:
            lines.append(Text(plain(f"{name}: " + "; ".join(parts))))
        if (online := entry.get("by_epoch")) is not None:
            lines.append(Text(plain(f"{name}: {by_epoch_line(online)}")))
        lines += [Text(plain(f"{name}: {remark}"), "yellow") for remark in entry.get("remarks", ())]
    lines += [Text(plain(why), style="dim") for why in summary.get("missing", ())]
    return Group(*lines)


def _colour(cell: Cell) -> str:
    return {True: "green", False: "red", None: ""}[cell.good]
