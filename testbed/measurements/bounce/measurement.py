# SPDX-License-Identifier: Apache-2.0
"""The measurement ``bounce``: NetBouncer's probes, off a core switch and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.measurements.measurement import Budget, Counts, Measurement, Running, Simulated
from testbed.record.run_tables import PLANS, PROBE_COUNTS, PROBE_PATHS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.measurements.measurement import PacketRun, SimulatedRun


class Bounce(Measurement):
    """Probes from each host to each core switch and back (NetBouncer, section 4.3)."""

    name = "bounce"
    view = "probes"
    help = "NetBouncer's probes: from each host to each core switch and back"
    unseen = "PROBES above 0 sends probes over every link"
    budgets = (
        Budget(
            name="probes",
            does="sends",
            what="probes",
            per="path, host and run",
            option="probes",
            paper="NetBouncer, section 6.1",
            feeds="a smaller LOAD",
        ),
    )
    tables = PROBE_PATHS, PROBE_COUNTS

    def start(self, run: PacketRun) -> Running:
        """Add the probes of all hosts to the network."""
        return BouncedProbes(run)

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated:
        """Send the probes of all hosts over links that lose packets."""
        from testbed.measurements.probe_tables import ProbeRows, send_probes

        del plan
        fabric, each = run.fabric, run.limits.probes
        paths = run.ecmp.bounces()
        path = np.repeat(np.arange(len(paths), dtype=np.int32), fabric.hosts_per_tor)
        tor = fabric.link_src[paths.links[paths.ptr[:-1]]]
        nth = np.arange(fabric.hosts_per_tor, dtype=np.int32)
        host = (tor[:, None] * fabric.hosts_per_tor + nth).reshape(-1)
        carried = send_probes(run, paths, path, (host, host), each, run.rng(6))
        sent = np.full(len(path), each, np.int64)
        rows = ProbeRows(PLANS[0], paths, path, host, host, sent, carried.lost)
        return Simulated(rows.tables, carried=carried, sent=int(sent.sum()))


class BouncedProbes(Running):
    """The probes of a run with packets."""

    def __init__(self, run: PacketRun) -> None:
        from testbed.measurements.bounce.probes import probe_plan
        from testbed.measurements.ip_in_ip import probe_source

        self._fabric, self._network = run.fabric, run.network
        self._plan = plan = probe_plan(run.fabric, run.duration_s, run.limits.probes, run.seed)
        source = probe_source(plan.packets, plan.frames, plan.host, plan.host)
        self.sending = (run.add_source(source),)

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the paths, by ToR and core switch, and the probes sent and lost."""
        from testbed.fabric.ecmp import Ecmp
        from testbed.measurements.probe_tables import ProbeRows, travel_us

        fabric, plan, number = self._fabric, self._plan, self.sending[0].number
        hosts, packets = (plan.host, plan.host), (counts.sent[number], counts.lost[number])
        times, paths = travel_us(self._network, number), Ecmp(fabric).bounces()
        return ProbeRows(PLANS[0], paths, plan.path, *hosts, *packets, times).tables
