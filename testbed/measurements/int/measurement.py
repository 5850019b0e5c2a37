# SPDX-License-Identifier: Apache-2.0
"""The measurement ``int``: the path that each packet carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.arrays import LongArray, WordArray
from testbed.control.switch import batch, for_each
from testbed.measurements.int.paths import BITS, link_codes, paths_of_codes
from testbed.measurements.link_meters import read_rows
from testbed.measurements.measurement import Counts, Measurement, Running, Simulated, Write
from testbed.record.flow_ids import FiveTuples, flow_ids
from testbed.record.run_tables import INT_PATHS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.fabric.clos import Fabric
    from testbed.measurements.measurement import PacketRun, SimulatedRun

_ROWS = 2
_CODE, _LOWER = np.uint64(8), np.uint64(48)
"""The bits of a report's lower half, as ``measurement.p4`` stores it: the code of the path, with
two bits that are 0, and the end of the flow ID."""


class Int(Measurement):
    """The path of each flow, which its packets carry to the ToR that delivers them.

    In-band telemetry names every switch in a header that grows. Here a packet carries the uplinks
    that were chosen for it, which determine the path in a Clos, as the way down is unique. A flow
    of which no packet arrives is not reported.
    """

    name = "int"
    view = "int"
    help = "the path of each flow, which its packets carry (INT)"
    unseen = "more LOAD lets packets cross every link"
    tables = (INT_PATHS,)
    program = Path(__file__).parent / "build" / "canary.json"

    def need(self, fabric: Fabric) -> None:
        """Raise UserError if a path of the fabric takes more bits than a packet has (one line)."""
        link_codes(fabric)

    def start(self, run: PacketRun) -> Running:
        """Tell the switches the bits of their uplinks, and the ToRs whose packets to report."""
        return IntRun(run, self)

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated:
        """Return the path of each flow of which a packet arrived."""
        del plan
        paths = run.flows.paths
        arrived = (run.flows.sent > run.flows.lost) & (paths.length > 0)
        flow = np.flatnonzero(arrived).astype(np.int32)
        return Simulated({INT_PATHS.name: {"flow": flow, "path": paths.take(flow)}})


class IntRun(Running):
    """The reports of all ToRs in a run with packets."""

    def __init__(self, run: PacketRun, measurement: Int) -> None:
        from testbed.dataplane import ARRIVING, LEAVING
        from testbed.dataplane.program import CompiledProgram

        assert measurement.program is not None
        compiled = CompiledProgram(measurement.program.parents[1], measurement.program.stem)
        self._run, self._codes = run, link_codes(run.fabric)
        self._cells = compiled.constants("measurement.p4")["CELLS"]
        self._rows = [
            {f: compiled.register(f"{ARRIVING}.row{row}.{f}", self._cells) for f in ("hi", "lo")}
            for row in range(_ROWS)
        ]
        racks = compiled.table(f"{ARRIVING}.racks", "hdr.ipv4.dst_ip")
        uplinks = compiled.table(f"{LEAVING}.uplinks", "std.egress_port")
        choose = compiled.action(uplinks, f"{LEAVING}.choose", "bits")
        fabric = run.fabric
        with batch(run.controls):
            for link in np.flatnonzero(self._codes).tolist():
                switch, port = int(fabric.link_src[link]), int(fabric.link_src_port[link])
                code = int(self._codes[link])
                run.controls[switch].table(uplinks).add([port], choose, (code,))
            for tor, control in enumerate(run.controls[: fabric.n_tors]):
                rack = int(fabric.switch_ip[tor]) & ~0xFF
                control.table(racks).add([(rack, 24)], "NoAction")
        self._reports: dict[int, WordArray] = {}

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> WordArray:
        """Read and clear the reports of all ToRs; return them, two words each, uint64[2, n]."""
        del rerouted, write
        tors = self._run.controls[: self._run.fabric.n_tors]
        found = for_each(tors, lambda each: read_rows(each, self._rows, 0, self._cells))
        words = [np.stack([each["hi"], each["lo"]]) for each in found if each is not None]
        every = np.concatenate([np.zeros((2, 0)), *(w.reshape(2, -1) for w in words)], axis=1)
        self._reports[number] = reports = every[:, every.any(axis=0)].astype(np.uint64)
        return reports

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the path of each flow, or its paths. The first packets of an epoch are in the
        reports that were read at the end of the epoch before it."""
        some = [each for number, each in self._reports.items() if number >= counts.first - 1]
        upper, lower = np.concatenate([np.zeros((2, 0), np.uint64), *some], axis=1)
        reported = upper >> np.uint64(16), upper << _LOWER | lower >> _CODE
        code = (lower & np.uint64((1 << BITS) - 1)).astype(np.int64)
        traffic, fabric = self._run.traffic, self._run.fabric
        src, dst = traffic.src_host, traffic.dst_host
        ports = traffic.src_port, traffic.dst_port
        ends = fabric.host_ip[src], fabric.host_ip[dst]
        flows = flow_ids(FiveTuples(*ends, *ports, traffic.protocol))
        flow, report = _pairs(flows, reported, code)
        tors = fabric.host_tor[src[flow]], fabric.host_tor[dst[flow]]
        known, paths = paths_of_codes(fabric, self._codes, *tors, code[report])
        return {INT_PATHS.name: {"flow": flow[known].astype(np.int32), "path": paths}}


_Ids = tuple[WordArray, WordArray]


def _pairs(flows: _Ids, reported: _Ids, code: LongArray) -> tuple[LongArray, LongArray]:
    """Return the numbers of flows and of the reports with their IDs, int64[n] each, in the order of
    the flows; of reports with the same ID and code only one is taken."""
    hi, lo = (np.concatenate(pair) for pair in zip(flows, reported, strict=True))
    order = np.lexsort((lo, hi))
    new = (np.diff(hi[order]) > 0) | (np.diff(lo[order]) != 0)
    rank = np.empty(len(hi), np.int64)
    rank[order] = np.concatenate(([0], np.cumsum(new)))[: len(hi)]
    of_flow, of_report = np.split(rank, [len(flows[0])])
    key, report = np.unique(of_report << BITS | code, return_index=True)
    first, after = (np.searchsorted(key, each << BITS) for each in (of_flow, of_flow + 1))
    width = after - first
    flow = np.repeat(np.arange(len(of_flow)), width)
    nth = np.arange(len(flow)) - np.repeat(np.cumsum(width) - width, width)
    return flow, report[first[flow] + nth]
