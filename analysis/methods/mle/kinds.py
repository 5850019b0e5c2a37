"""Which parts of the telemetry the explanation reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.methods.mle.flows import FlowParts, chosen_flows
from analysis.methods.mle.problem import Observed
from analysis.methods.mle.trials import as_trials, connections_as_trials, die_whole
from analysis.telemetry.telemetry import Flows, MissingTelemetry, Probes, Telemetry
from testbed.errors import UserError

KINDS = ("segments", "A1", "A2", "P", "INT", "detector")
"""Canary's segments, deTector's probes, and Flock's kinds (its section 6.2): A1, probes; A2, flows
that lost packets, with the path traced; P, all flows with their possible paths; INT, all flows with
the path each took."""


def chosen_kinds(kinds: str | None) -> frozenset[str] | None:
    """The kinds of a list such as ``A1+A2+P``; None are what `chosen_parts` reads
    unasked.

    Raises:
        ValueError: One is unknown.
    """
    if kinds is None:
        return None
    found = kinds.split("+")
    for kind in found:
        if kind not in KINDS:
            raise UserError(f"no kind {kind!r}: known are {', '.join(KINDS)}, joined by +")
    return frozenset(found)


@dataclass(frozen=True)
class Parts:
    """What is read of a run's telemetry.

    Attributes:
        used: Kinds, of `KINDS`.
        known: Observations whose path is known.
        flows: What flow records tell, if they are read.
        parts: The parts that were read, by name, but for segments.
    """

    used: frozenset[str]
    known: list[Observed]
    flows: FlowParts | None
    parts: Mapping[str, Probes | Flows]


def chosen_parts(telemetry: Telemetry, kinds: frozenset[str] | None, method: str) -> Parts:
    """The observations of some kinds; unasked all that were measured over known paths: segments,
    probes, and flow records where each has its path. Hidden paths take long, and are read by name.

    Segments and flow records count the same packets, so where both are read each has half its
    weight: no packet counts twice.

    Raises:
        MissingTelemetry: A kind was not measured, or nothing was.
    """

    def wanted(kind: str, name: str) -> bool:
        there = getattr(telemetry, name) is not None
        if kinds is None:
            return there
        if kind in kinds and not there:
            raise MissingTelemetry(f"{method} needs the telemetry part {name!r}: it is missing")
        return kind in kinds

    used, known, parts = set(), [], {}
    reads_flows = any(wanted(kind, "flows") for kind in ("A2", "P", "INT"))
    records, trials = _records(telemetry, kinds, method) if reads_flows else (None, False)
    for kind, name in (("A1", "probes"), ("detector", "detector")):
        if wanted(kind, name):
            parts[name] = part = getattr(telemetry, name)
            used.add(kind)
            known.append(_observed(part, trials))
    metered, flows = wanted("segments", "segments"), None
    if records is not None:
        weight = 0.5 if metered and len(records) else 1.0
        found = chosen_flows(telemetry.topology, records, kinds, weight, trials=trials)
        if found.kinds:
            flows, parts["flows"] = found, records
            used |= flows.kinds
            known.append(flows.known)
    if metered:
        used.add("segments")
        counts = telemetry.need("segments", method)
        weight = 1.0 if flows is None or not len(parts["flows"]) else 0.5
        sums = [weight * count.sum(axis=0) for count in (counts.sent, counts.lost)]
        known.append(Observed(counts.segments.paths, *sums))
    if not used:
        raise MissingTelemetry(
            f"{method} needs one of the telemetry parts 'segments', 'flows' with paths, 'probes' "
            "and 'detector': all are missing"
        )
    return Parts(frozenset(used), known, flows, parts)


def _records(telemetry: Telemetry, kinds: frozenset[str] | None, method: str) -> tuple[Flows, bool]:
    """The flow records, and whether they are given as trials, as they die whole."""
    records = telemetry.need("flows", method)
    chosen = (kinds or frozenset()) & {"A2", "P", "INT"}
    traced = telemetry.connections if "A2" in chosen else None
    if not chosen or "INT" in chosen or not die_whole(records, traced):
        return records, False
    if "P" in chosen:
        return as_trials(records, traced), True
    if traced is None:
        return records, False
    return connections_as_trials(telemetry.topology, traced), True


def _observed(probes: Probes, trials: bool) -> Observed:
    """Probes of a path packet by packet, or as one trial, which fails if most of them are lost."""
    sent, lost = probes.sent, probes.lost
    if trials:
        sent, lost = np.minimum(sent, 1), 2 * lost > sent
    counts = sent.astype(np.float64), lost.astype(np.float64)
    return Observed(probes.paths, *counts, row_ptr=probes.row_ptr)
