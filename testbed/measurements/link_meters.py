# SPDX-License-Identifier: Apache-2.0
"""Meters at both ends of each link, from whose difference a sketch decodes the lost packets of
flows.

A measurement of this kind has a ``measurement.p4`` with `p4/include/link.p4` and
`p4/include/link_ends.p4`, which name tables and registers as they are named here, and decodes the
cells of one link. Every switch has two meters, one for packets that leave and one for packets that
arrive, and shares the cells of each among its links.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray, WordArray
from testbed.control.epochs import parity_changes
from testbed.control.switch import SwitchControl, batch, for_each
from testbed.measurements.measurement import Counts, Measurement, Running, Write
from testbed.record.run_tables import LINK_COUNTS, LINK_LOSSES
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.dataplane.program import CompiledProgram
    from testbed.fabric.packet_fabric import PacketFabric
    from testbed.measurements.measurement import PacketRun

_Arrays = dict[str, npt.NDArray[Any]]

ROWS = 3
"""Rows of a meter, as `p4/include/link.p4` has hashes for."""

Cells = Mapping[str, npt.NDArray[Any]]
"""The cells of a link's meter in an epoch: for each field an array [ROWS, cells of a row]."""


@dataclass(frozen=True)
class LostPackets:
    """The packets of flows that a link lost, decoded: flow IDs ``hi`` and ``lo``, uint64[n], and
    ``packets``, int64[n]."""

    hi: WordArray
    lo: WordArray
    packets: LongArray


@dataclass(frozen=True)
class LinkLosses:
    """What methods read of meters at both ends of links.

    Attributes:
        counts: The columns of the table ``link_counts``: packets sent and lost on each link and in
            each epoch.
        flows: Those of ``link_losses``: the lost packets of each flow on a link.
    """

    counts: Mapping[str, LongArray]
    flows: Mapping[str, npt.NDArray[Any]]

    @property
    def bytes(self) -> int:
        """Return the bytes of all meters that were read."""
        return int(self.counts["bytes"].sum())

    def by_link(self) -> tuple[IntArray, LongArray, LongArray]:
        """Return the links whose meters were read, ascending, int32[n], and the packets that each
        sent and lost in all epochs, int64[n]."""
        links, row = np.unique(self.counts["link"], return_inverse=True)
        sums = np.zeros((2, len(links)), np.int64)
        for cells, name in zip(sums, ("sent", "lost"), strict=True):
            np.add.at(cells, row, self.counts[name])
        return links.astype(np.int32), sums[0], sums[1]


class LinkMeters(Measurement):
    """Meters at both ends of each link; a subclass has the program and decodes the cells.

    Attributes:
        fields: The register arrays of a row. One of them is ``count``, the packets in a cell.
        cell_bits: Bits of a cell.
    """

    fields: ClassVar[Sequence[str]]
    cell_bits: ClassVar[int]
    unseen = "more LOAD lets packets cross every link"
    tables = LINK_COUNTS, LINK_LOSSES

    @abstractmethod
    def decode(self, sent: Cells, arrived: Cells) -> LostPackets:
        """Return the lost packets that the cells at both ends of a link show."""

    def start(self, run: PacketRun) -> Running:
        """Share the cells of each switch among its links."""
        return LinkMetersRun(run, self)

    def read(self, tables: Mapping[str, Columns]) -> LinkLosses:
        """Return the losses of all epochs."""
        counts, flows = (
            {name: np.asarray(column) for name, column in tables[table.name].items()}
            for table in self.tables
        )
        return LinkLosses(counts, flows)


class MeterBlock:
    """A meter of a switch, all its links together: its table, registers and cells of a row.

    Args:
        compiled: The program of the measurement.
        block: The control block of the meter.
        fields: The register arrays of a row.
    """

    def __init__(self, compiled: CompiledProgram, block: str, fields: Sequence[str]) -> None:
        self.cells = compiled.constants("measurement.p4")["CELLS"]
        self.links = compiled.table(f"{block}.cells.links", "port")
        self.share = compiled.action(self.links, f"{block}.cells.share", "begin", "cells")
        self.rows = [
            {field: compiled.register(f"{block}.row{row}.{field}", self.cells) for field in fields}
            for row in range(ROWS)
        ]

    @property
    def registers(self) -> list[str]:
        """Return the names of all register arrays."""
        return [name for row in self.rows for name in row.values()]


class LinkMetersRun(Running):
    """The meters of all links in a run with packets."""

    def __init__(self, run: PacketRun, measurement: LinkMeters) -> None:
        from testbed.dataplane import ARRIVING, LEAVING
        from testbed.dataplane.program import CompiledProgram

        assert measurement.program is not None  # each subclass has one
        compiled = CompiledProgram(measurement.program.parents[1], measurement.program.stem)
        self._measurement, self._clock, self._monitors = measurement, run.clock, set(run.monitors)
        self._controls = dict(enumerate(run.controls))
        blocks = (f"{block}.meter" for block in (LEAVING, ARRIVING))
        self._ends = [MeterBlock(compiled, block, measurement.fields) for block in blocks]
        self._fabric = fabric = run.fabric
        self._begin, self.width = _shares(fabric, self._ends[0].cells)
        self._restarted: set[int] = set()
        self._counts: dict[int, _Arrays] = {}
        self._losses: dict[int, _Arrays] = {}
        ports = fabric.link_src_port, fabric.link_dst_port
        with batch(run.controls):
            for end, switches, port, begin in zip(
                self._ends, self._switches, ports, self._begin, strict=True
            ):
                for link, switch in enumerate(switches.tolist()):
                    share = int(begin[link]), int(self.width[link])
                    run.controls[switch].table(end.links).add([int(port[link])], end.share, share)

    @property
    def _switches(self) -> tuple[IntArray, IntArray]:
        """Return the switches at the begin and at the end of each link, int32[n_links] each."""
        return self._fabric.link_src, self._fabric.link_dst

    def changes(self, epoch: int) -> Sequence[tuple[int, Callable[[], None]]]:
        """Return when each switch begins to count in the other half of its cells; those with
        meters of Canary do so with these."""
        others = {s: each for s, each in self._controls.items() if s not in self._monitors}
        return parity_changes(self._clock, epoch, others)

    def restarted(self, switch: int) -> None:
        """Note that a switch lost what it had counted."""
        self._restarted.add(switch)

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> LongArray:
        """Read and clear the cells of an epoch, and decode them; return the packets sent and lost
        on each link, int64[2, n_links]. Links of a switch that restarted or does not answer have
        none."""
        del rerouted, write
        half = self._ends[0].cells // 2
        here = number % 2 * half, (number % 2 + 1) * half
        switches = [s for s, each in self._controls.items() if s not in self._restarted]
        read = for_each(
            (self._controls[switch] for switch in switches),
            lambda control: self._read_switch(control, *here),
        )
        cells = {s: found for s, found in zip(switches, read, strict=True) if found is not None}
        self._restarted.clear()
        rows: list[tuple[int, ...]] = []
        losses: list[tuple[int, LostPackets]] = []
        counts = np.zeros((2, self._fabric.n_links), np.int64)
        size = 2 * ROWS * self._measurement.cell_bits * self.width // 8
        for link, (src, dst) in enumerate(zip(*self._switches, strict=True)):
            if src not in cells or dst not in cells:
                continue
            ends = [
                {name: rows[:, begin[link] : begin[link] + self.width[link]] for name, rows in at}
                for at, begin in (
                    (cells[src][0].items(), self._begin[0]),
                    (cells[dst][1].items(), self._begin[1]),
                )
            ]
            sent, arrived = (int(end["count"][0].sum(dtype=np.int64)) for end in ends)
            lost = self._measurement.decode(*ends) if sent != arrived else _NOTHING
            counts[:, link] = sent, sent - arrived
            rows.append((link, sent, sent - arrived, int(lost.packets.sum()), int(size[link])))
            losses.append((link, lost))
        columns = np.array(rows, np.int64).reshape(-1, 5).T
        names = [column.name for column in LINK_COUNTS.columns[1:]]
        self._counts[number] = dict(zip(names, columns, strict=True))
        self._losses[number] = {
            "link": np.repeat([link for link, _ in losses], [len(lost.hi) for _, lost in losses]),
            "flow_hi": np.concatenate([_NOTHING.hi, *(lost.hi for _, lost in losses)]),
            "flow_lo": np.concatenate([_NOTHING.lo, *(lost.lo for _, lost in losses)]),
            "lost": np.concatenate([_NOTHING.packets, *(lost.packets for _, lost in losses)]),
        }
        return counts

    def _read_switch(self, control: SwitchControl, start: int, stop: int) -> list[Cells] | None:
        """Read and clear the cells from ``start`` to ``stop - 1`` of a switch's two meters; return
        them, or None if it does not answer."""
        names = [name for end in self._ends for name in end.registers]
        found = control.read_registers(names)
        if control.lost:
            return None
        meters = [
            {
                field: np.stack([found[row[field]][start:stop] for row in end.rows])
                for field in self._measurement.fields
            }
            for end in self._ends
        ]
        control.reset_registers(names, start, stop)
        return meters  # type: ignore[return-value]

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the counts of each link and the lost packets of flows, by epoch."""
        return {
            LINK_COUNTS.name: _of_epochs(self._counts, counts.first),
            LINK_LOSSES.name: _of_epochs(self._losses, counts.first),
        }


_NO_IDS = np.zeros(0, np.uint64)
_NOTHING = LostPackets(_NO_IDS, _NO_IDS, np.zeros(0, np.int64))


def _of_epochs(epochs: Mapping[int, _Arrays], first: int) -> Columns:
    """Return the columns of all epochs from ``first`` on, one after another, with their number."""
    some = {number - first: each for number, each in epochs.items() if number >= first}
    sizes = [len(next(iter(each.values()))) for each in some.values()]
    joined = {
        name: np.concatenate([each[name] for each in some.values()])
        for name in next(iter(some.values()))
    }
    return {"epoch": np.repeat(np.array(list(some), np.int32), sizes), **joined}


def _shares(fabric: PacketFabric, cells: int) -> tuple[tuple[LongArray, LongArray], LongArray]:
    """Return where the cells of each link begin in the meters at its begin and at its end, and how
    many it has in a row, int64[n_links] each.

    A switch shares half of a row, as the other half is for the other parity, equally among its
    links. A link has as many at both of its ends: the fewer of the two.
    """
    widths, begins = [], []
    for switch in (fabric.link_src, fabric.link_dst):
        order = np.argsort(switch, kind="stable")
        first = np.searchsorted(switch[order], switch)
        nth = np.empty(len(switch), np.int64)
        nth[order] = np.arange(len(switch)) - first[order]
        width = cells // 2 // np.bincount(switch, minlength=fabric.n_switches)[switch]
        widths.append(width)
        begins.append(nth * width)
    return (begins[0], begins[1]), np.minimum(*widths)
