# SPDX-License-Identifier: Apache-2.0
"""The measurement ``matrix``: deTector's probes over the paths of its probe matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.measurements.measurement import Budget, Counts, Measurement, Running, Simulated
from testbed.record.run_tables import PLANS, PROBE_COUNTS, PROBE_PATHS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.fabric.clos import Fabric
    from testbed.measurements.measurement import PacketRun, SimulatedRun


PER_RACK = 512
"""The most probes that the pingers of a rack send for each unit of PROBES: NetBouncer's at K=16."""


class Matrix(Measurement):
    """Probes over few paths that cover every link and tell failures apart (deTector, section 4).

    They are as many as NetBouncer's, so that plans are compared at equal cost, up to what a rack's
    pingers may send. NetBouncer's grow as the fifth power of K; deTector's pingers have a budget of
    bandwidth, and two to four of them are in a rack (sections 3.1 and 4.1).
    """

    name = "matrix"
    view = "detector"
    help = "deTector's probes: over the paths of its matrix, both ways"
    unseen = "PROBES above 0 sends probes over every link"
    budgets = (
        Budget(
            name="matrix probes",
            does="sends",
            what="probes",
            per=f"run, in all as many as NetBouncer's, at most {PER_RACK} times PROBES a rack",
            option="probes",
            paper="deTector, sections 3.1 and 4.1, and this project, for equal cost",
            feeds="a smaller LOAD",
            per_rack=PER_RACK,
        ),
    )
    tables = PROBE_PATHS, PROBE_COUNTS

    def start(self, run: PacketRun) -> Running:
        """Add the probes to the network."""
        return MatrixRun(run, self.budgets[0])

    def plan(self, fabric: Fabric) -> Any:
        """Return the probe matrix, which may take as long as the rest of the run."""
        from testbed.fabric.probe_matrix.matrix import standard_matrix

        return standard_matrix(fabric)

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated:
        """Send the probes over links that lose packets. No single host sends those of a path,
        unless links of hosts are faulty."""
        from testbed.measurements.matrix.probes import probing_pairs
        from testbed.measurements.probe_tables import ProbeRows, send_probes

        paths, fabric = plan.both_ways, run.fabric
        path = np.arange(len(paths), dtype=np.int32)
        nobody = np.full(len(path), -1, np.int32)
        ends = nobody, nobody
        if run.hosts is not None:
            path, _, ends = probing_pairs(fabric, plan)
        each = self.budgets[0].probes_each(fabric, len(path), run.limits.probes)
        carried = send_probes(run, paths, path, ends, each, run.rng(7))
        sent = np.full(len(path), each, np.int64)
        rows = ProbeRows(PLANS[1], paths, path, *ends, sent, carried.lost)
        return Simulated(rows.tables, carried=carried, sent=int(sent.sum()))


class MatrixRun(Running):
    """The probes of a run with packets."""

    def __init__(self, run: PacketRun, budget: Budget) -> None:
        from testbed.fabric.probe_matrix.matrix import standard_matrix
        from testbed.measurements.ip_in_ip import probe_source
        from testbed.measurements.matrix.probes import PAIRS, matrix_probes

        fabric, self._network = run.fabric, run.network
        matrix = standard_matrix(fabric)
        each = budget.probes_each(fabric, PAIRS * len(matrix.both_ways), run.limits.probes)
        self._probes = probes = matrix_probes(fabric, matrix, run.duration_s, each, run.seed)
        source = probe_source(probes.packets, probes.frames, probes.src_host, probes.dst_host)
        self.sending = (run.add_source(source),)

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the paths, and the probes of each pair of hosts sent and lost."""
        from testbed.measurements.probe_tables import ProbeRows, travel_us

        probes, number = self._probes, self.sending[0].number
        hosts = probes.src_host, probes.dst_host
        packets = counts.sent[number], counts.lost[number]
        times = travel_us(self._network, number)
        return ProbeRows(PLANS[1], probes.paths, probes.path, *hosts, *packets, times).tables
