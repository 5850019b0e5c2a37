# SPDX-License-Identifier: Apache-2.0
"""The measurement ``traces``: 007's traceroutes of the connections that lost packets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.measurements.measurement import Budget, Counts, Measurement, Running, Simulated
from testbed.record.run_tables import CONNECTIONS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.fabric.clos import Fabric
    from testbed.measurements.measurement import Limits, PacketRun, SimulatedRun


TRACED = 0.4
"""Share of theorem 1's bound (007, section 4.1) that hosts trace by default.

The bound counts the answers on the way up only, and those on the way down are as many; the rest is
left because traffic is not spread evenly."""


def traces_of_host(limits: Limits, fabric: Fabric) -> float:
    """Return how many traceroutes a second each host may send."""
    from testbed.measurements.traces.path_discovery import host_rate_limit

    return limits.traces_per_s or TRACED * host_rate_limit(fabric, limits.answers_per_s)


class Traces(Measurement):
    """Traceroutes of connections, by agents on all hosts (007, section 4)."""

    name = "traces"
    view = "connections"
    help = "007's traceroutes of the connections that lost packets"
    unseen = "more LOAD, or traffic of TCP, lets hosts watch connections over them"
    budgets = (
        Budget(
            name="traceroutes",
            does="sends",
            what="traceroutes",
            per="second and host",
            option="traces_per_s",
            paper="007, section 4.1, theorem 1",
            feeds="a larger ICMP_PER_S or TRACES_PER_S, or the same packets in more time: a longer "
            "EPOCH_MS and as much less LOAD",
        ),
        Budget(
            name="ICMP messages",
            does="sends",
            what="ICMP messages",
            per="second and switch",
            option="icmp_per_s",
            paper="007, section 4.1",
            feeds="a larger ICMP_PER_S, or the same packets in more time: a longer EPOCH_MS and as "
            "much less LOAD",
        ),
    )
    tables = (CONNECTIONS,)

    def start(self, run: PacketRun) -> Running:
        """Start the agents of all hosts."""
        return Agents(run)

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated:
        """Trace the flows that lost packets."""
        from testbed.measurements.traces.flow_traces import trace

        del plan
        traces = trace(
            run.ecmp,
            run.loss,
            run.host,
            run.start_s,
            run.end_s,
            run.flows.paths,
            run.flows.lost,
            hosts=run.hosts,
            epoch_s=run.epoch_s,
            until_s=run.duration_s,
            per_s=traces_of_host(run.limits, run.fabric),
            icmp=run.limits.icmp,
            rng=run.rng(4),
        )
        found = {"flow": traces.flow, "path": traces.paths, "complete": traces.complete}
        figures = {
            "traceroute_packets": traces.packets,
            "icmp_messages": traces.answers,
            "icmp_refused": traces.refused,
        }
        return Simulated({CONNECTIONS.name: found}, figures)


class Agents(Running):
    """The agents of a run with packets."""

    def __init__(self, run: PacketRun) -> None:
        from testbed.measurements.traces.path_discovery import PathDiscovery

        self._run = run
        per_s = traces_of_host(run.limits, run.fabric)
        self._agents = PathDiscovery(run.network, run.traffic, run.data, per_s)

    def poll(self, now_ns: int, retransmitted: npt.NDArray[np.int64] | None) -> None:
        """Trace connections that lost packets."""
        self._agents.poll(now_ns, retransmitted)

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the connections with loss that were traced, and how far each trace got."""
        from testbed.measurements.traces.path_discovery import assemble_paths, parse_time_exceeded

        traffic, fabric = self._run.traffic, self._run.fabric
        replies = parse_time_exceeded(counts.replies["data"], fabric)
        traced = np.flatnonzero(self._agents.traced & (counts.lost[self._run.data] > 0))
        paths = assemble_paths(fabric, traffic, traced, replies)
        src, dst = (fabric.host_tor[host[traced]] for host in (traffic.src_host, traffic.dst_host))
        complete = paths.length == fabric.hops(src, dst)
        return {CONNECTIONS.name: {"flow": traced, "path": paths, "complete": complete}}

    def figures(self, counts: Counts) -> Mapping[str, Any]:
        """Return the packets of the traceroutes and the switches' answers. Real switches do not
        report the answers that they withheld."""
        sent = {"traceroute_packets": self._agents.packets}
        if counts.withheld is None:
            return sent | {"icmp_messages": len(counts.replies)}
        answered = counts.statistics.ttl_drops - counts.withheld
        return sent | {"icmp_refused": counts.withheld, "icmp_messages": answered}
