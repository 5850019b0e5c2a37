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


class Matrix(Measurement):
    """Probes over few paths that cover every link and tell failures apart (deTector, section 4).

    They are as many as NetBouncer's, so that plans are compared at equal cost.
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
            per="run, in all as many as NetBouncer's",
            option="probes",
            paper="this project, so that plans are compared at equal cost",
            feeds="a smaller LOAD",
        ),
    )
    tables = PROBE_PATHS, PROBE_COUNTS
    probes = True

    def start(self, run: PacketRun) -> Running:
        """Add the probes to the network."""
        return MatrixRun(run)

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
        asked = len(run.ecmp.bounces()) * fabric.hosts_per_tor * run.limits.probes
        path = np.arange(len(paths), dtype=np.int32)
        nobody = np.full(len(path), -1, np.int32)
        ends = nobody, nobody
        if run.hosts is not None:
            path, _, ends = probing_pairs(fabric, plan)
        each = max(1, asked // max(len(path), 1))
        carried = send_probes(run, paths, path, ends, each, run.rng(7))
        sent = np.full(len(path), each, np.int64)
        rows = ProbeRows(PLANS[1], paths, path, *ends, sent, carried.lost)
        return Simulated(rows.tables, carried=carried, sent=int(sent.sum()))


class MatrixRun(Running):
    """The probes of a run with packets."""

    def __init__(self, run: PacketRun) -> None:
        from testbed.fabric.ecmp import Ecmp
        from testbed.fabric.probe_matrix.matrix import standard_matrix
        from testbed.measurements.ip_in_ip import probe_source
        from testbed.measurements.matrix.probes import matrix_probes

        fabric, self._network = run.fabric, run.network
        pairs = len(Ecmp(fabric).bounces()) * fabric.hosts_per_tor
        self._probes = probes = matrix_probes(
            fabric,
            standard_matrix(fabric),
            run.duration_s,
            packets=pairs * run.limits.probes,  # as many as NetBouncer's
            seed=run.seed,
        )
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
