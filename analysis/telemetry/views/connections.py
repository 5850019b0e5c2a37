# SPDX-License-Identifier: Apache-2.0
"""The connections that lost packets and were traced (007)."""

from __future__ import annotations

import numpy as np

from analysis.telemetry.telemetry import Connections
from analysis.telemetry.views.source import Source
from analysis.telemetry.views.view import unobserved
from testbed.fabric.pair_sets import PairSets
from testbed.record.documents import Measured, Use
from testbed.record.flow_ids import TCP
from testbed.record.run import Record, whole_fabric


def connections(source: Source) -> Connections | None:
    """Return the connections that lost packets and were traced."""
    flows, traces = source.flows, source.traces
    if traces is None:
        return None
    flow, complete = traces["flow"], traces["complete"]
    if source.hosts is not None:  # within a rack there is one way
        complete = complete | (flows["src_tor"][flow] == flows["dst_tor"][flow])
    src, dst = source.ends(flow)
    return Connections(
        src_tor=src,
        dst_tor=dst,
        lost=flows["lost"][flow],
        paths=source.between(traces["path"], flow, complete),
        complete=complete,
        traceroute_packets=source.record.network["traceroute_packets"],
        watched=_watched(source),
    )


def _watched(source: Source) -> PairSets:
    """Return the pairs of ToRs, or of hosts, between which hosts had connections; only TCP counts
    if the record has protocols."""
    flows = source.flows
    row = flows["sent"] > 0
    if "protocol" in flows:
        row &= flows["protocol"] == TCP
    return PairSets.between(whole_fabric(source.record), *source.ends(np.flatnonzero(row)))


def used(record: Record, part: Connections) -> Measured:
    """Return how many traceroutes and answers there were, of those that were asked for."""
    network, flows = record.network, record.table("flows")
    lossy = flows["lost"] > 0
    if "protocol" in flows:
        lossy &= flows["protocol"] == TCP
    traced = lossy[record.table("connections")["flow"]]
    budgets: dict[str, Use] = {"traceroutes": {"asked": int(lossy.sum()), "got": int(traced.sum())}}
    if "icmp_messages" in network and "icmp_refused" in network:
        got = network["icmp_messages"]
        budgets["ICMP messages"] = {"asked": got + network["icmp_refused"], "got": got}
    missing = unobserved(record, part, *([] if part.watched is None else [part.watched]))
    packets = network["traceroute_packets"]
    return {"budgets": budgets, "packets": packets, "links_unobserved": missing}


def unseen(part: Connections, advice: str) -> str:
    """Return why links were not observed; see `View.unseen`."""
    if len(part):
        return advice
    if part.watched is not None and not len(part.watched):
        return "no host had a connection: traffic of TCP is needed"
    return "no connection lost a packet and was traced"
