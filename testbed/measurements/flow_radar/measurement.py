# SPDX-License-Identifier: Apache-2.0
"""The measurement ``flow_radar``: FlowRadar's table at each switch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, LongArray, WordArray
from testbed.measurements.link_meters import (
    ROWS,
    Cells,
    LinkMeasurement,
    LinkRun,
    LostPackets,
    read_rows,
)
from testbed.measurements.measurement import Running, Write
from testbed.measurements.sketches.flow_radar import CELL_BITS, FlowRadar
from testbed.measurements.sketches.hashing import SWITCH

if TYPE_CHECKING:
    from testbed.control.switch import SwitchControl
    from testbed.fabric.packet_fabric import PacketFabric
    from testbed.measurements.measurement import PacketRun

_FIELDS = "flow_hi", "flow_lo", "flows", "packets"
_HALF = np.uint64(52)
"""Bits of a half of a flow ID, as ``measurement.p4`` stores it."""


class FlowRadarTables(LinkMeasurement):
    """The flows of each switch with their packets, and what they lost from one to the next.

    A link's losses are those of the flows that both of its switches decode. A flow that loses all
    its packets on a link is not at the next switch, so nothing here says which link that was;
    FlowRadar itself would know the flow's path from the configuration of the network.
    """

    name = "flow_radar"
    view = "flow_radar"
    help = "FlowRadar's table of all flows at each switch"
    program = Path(__file__).parent / "build" / "canary.json"

    def start(self, run: PacketRun) -> Running:
        """Begin with empty tables."""
        return FlowRadarRun(run, self)


class FlowRadarRun(LinkRun):
    """The tables of all switches in a run with packets."""

    def __init__(self, run: PacketRun, measurement: FlowRadarTables) -> None:
        from testbed.dataplane import ARRIVING

        super().__init__(run)
        compiled = measurement.compiled()
        sizes = compiled.constants("measurement.p4")
        self._cells, self._filter_bits = sizes["CELLS"], sizes["FILTER"]
        self._rows = [
            {f: compiled.register(f"{ARRIVING}.row{row}.{f}", self._cells) for f in _FIELDS}
            for row in range(ROWS)
        ]
        self._filter = compiled.register(f"{ARRIVING}.seen.filter", self._filter_bits)
        self._below = _tors_below(run.fabric)

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> LongArray:
        """Read, clear and decode the tables of an epoch, and compare those of each link's
        switches; return the packets sent and lost on each link, int64[2, n_links]."""
        del rerouted, write
        cells = self.read_switches(partial(self._read_switch, parity=number % 2))
        decoded = {switch: _decoded(each) for switch, each in cells.items()}
        hi, lo, packets = (np.concatenate(part) for part in zip(*decoded.values(), strict=True))
        ids, flow = np.unique(np.stack((hi, lo)), axis=1, return_inverse=True)
        ends = np.cumsum([len(each[0]) for each in decoded.values()])[:-1]
        parts = zip(np.split(flow.reshape(-1), ends), np.split(packets, ends), strict=True)
        flows = dict(zip(decoded, parts, strict=True))
        begins, goes = _ends(self.fabric, *ids)
        size = (ROWS * self._cells * CELL_BITS + self._filter_bits) // 16
        out = np.bincount(self.fabric.link_src, minlength=self.fabric.n_switches)
        rows: list[tuple[int, ...]] = []
        losses: list[tuple[int, LostPackets]] = []
        for link, (src, dst) in enumerate(
            zip(self.fabric.link_src.tolist(), self.fabric.link_dst.tolist(), strict=True)
        ):
            if src not in flows or dst not in flows:
                continue
            both, here, there = np.intersect1d(
                flows[src][0], flows[dst][0], assume_unique=True, return_indices=True
            )
            up = self.fabric.tier[dst] > self.fabric.tier[src]
            on = self._below[src][begins[both]] if up else self._below[dst][goes[both]]
            sent = flows[src][1][here[on]]
            lost = np.maximum(sent - flows[dst][1][there[on]], 0)
            victims = lost > 0
            total, share = int(lost.sum()), size // int(out[src])
            rows.append((link, int(sent.sum()), total, total, share))
            found = ids[:, both[on][victims]]
            losses.append((link, LostPackets(found[0], found[1], lost[victims])))
        return self.keep(number, rows, losses)

    def _read_switch(self, control: SwitchControl, parity: int) -> Cells | None:
        """Read and clear a switch's table and filter of a parity."""
        half, bits = self._cells // 2, self._filter_bits // 2
        found = read_rows(control, self._rows, parity * half, (parity + 1) * half)
        control.reset_registers([self._filter], parity * bits, (parity + 1) * bits)
        return found


def _decoded(cells: Cells) -> tuple[WordArray, WordArray, LongArray]:
    """Return the flows of a switch that can be decoded, each once: their IDs, uint64[n] twice, and
    packets, int64[n]."""
    table = FlowRadar(cells["flows"].shape[1], seed=SWITCH)
    upper, lower = (cells[name].astype(np.uint64) for name in ("flow_hi", "flow_lo"))
    table.flow_xor = np.stack((upper >> np.uint64(12), upper << _HALF | lower))
    table.flow_count = cells["flows"].astype(np.uint8)
    table.packet_count = cells["packets"].astype(np.uint32)
    hi, lo, packets, _ = table.decode()
    _, first = np.unique(np.stack((hi, lo)), axis=1, return_index=True)
    return hi[first], lo[first], packets[first]


def _ends(fabric: PacketFabric, hi: WordArray, lo: WordArray) -> tuple[LongArray, LongArray]:
    """Return the ToRs where flows, given by their IDs, begin and end, int64[n] each."""
    src = hi >> np.uint64(8)
    dst = (hi & np.uint64(0xFF)) << np.uint64(24) | lo >> np.uint64(40)
    order = np.argsort(fabric.host_ip)
    known = fabric.host_ip[order].astype(np.uint64)

    def tor(ip: npt.NDArray[np.uint64]) -> LongArray:
        """Return the ToR of each address, int64[n]."""
        at = np.minimum(np.searchsorted(known, ip), len(known) - 1)
        return fabric.host_tor[order[at]].astype(np.int64)

    return tor(src), tor(dst)


def _tors_below(fabric: PacketFabric) -> BoolArray:
    """Return for each switch which ToRs are below it, a ToR being below itself,
    bool[n_switches, n_tors]."""
    below = np.zeros((fabric.n_switches, fabric.n_tors), np.bool_)
    below[: fabric.n_tors] = np.eye(fabric.n_tors, dtype=np.bool_)
    up = np.flatnonzero(fabric.tier[fabric.link_dst] > fabric.tier[fabric.link_src])
    for link in up[np.argsort(fabric.tier[fabric.link_src[up]], kind="stable")].tolist():
        below[fabric.link_dst[link]] |= below[fabric.link_src[link]]
    return below
