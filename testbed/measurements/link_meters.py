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
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

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

T = TypeVar("T")
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


class LinkMeasurement(Measurement):
    """A measurement that finds the lost packets of flows on each link."""

    unseen = "more LOAD lets packets cross every link"
    tables = LINK_COUNTS, LINK_LOSSES

    def read(self, tables: Mapping[str, Columns]) -> LinkLosses:
        """Return the losses of all epochs."""
        counts, flows = (
            {name: np.asarray(column) for name, column in tables[table.name].items()}
            for table in self.tables
        )
        return LinkLosses(counts, flows)

    def compiled(self) -> CompiledProgram:
        """Return the names of the switch program."""
        from testbed.dataplane.program import CompiledProgram

        assert self.program is not None  # each subclass has one
        return CompiledProgram(self.program.parents[1], self.program.stem)


class LinkMeters(LinkMeasurement):
    """Meters at both ends of each link; a subclass has the program and decodes the cells.

    Attributes:
        fields: The register arrays of a row. One of them is ``count``, the packets in a cell.
        cell_bits: Bits of a cell.
    """

    fields: ClassVar[Sequence[str]]
    cell_bits: ClassVar[int]

    @abstractmethod
    def decode(self, sent: Cells, arrived: Cells) -> LostPackets:
        """Return the lost packets that the cells at both ends of a link show."""

    def start(self, run: PacketRun) -> Running:
        """Share the cells of each switch among its links."""
        return LinkMetersRun(run, self)


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


class LinkRun(Running):
    """What a `LinkMeasurement` found in a run with packets, epoch by epoch."""

    def __init__(self, run: PacketRun) -> None:
        self.fabric, self._clock, self._monitors = run.fabric, run.clock, set(run.monitors)
        self._controls = dict(enumerate(run.controls))
        self._restarted: set[int] = set()
        self._counts: dict[int, _Arrays] = {}
        self._losses: dict[int, _Arrays] = {}

    def changes(self, epoch: int) -> Sequence[tuple[int, Callable[[], None]]]:
        """Return when each switch begins to count in the other half of its cells; those with
        meters of Canary do so with these."""
        others = {s: each for s, each in self._controls.items() if s not in self._monitors}
        return parity_changes(self._clock, epoch, others)

    def restarted(self, switch: int) -> None:
        """Note that a switch lost what it had counted."""
        self._restarted.add(switch)

    def read_switches(self, read: Callable[[SwitchControl], T | None]) -> dict[int, T]:
        """Return what ``read`` returns of each switch that answers and has not restarted since the
        last call, by number."""
        switches = [s for s in self._controls if s not in self._restarted]
        self._restarted.clear()
        found = for_each((self._controls[switch] for switch in switches), read)
        return {s: each for s, each in zip(switches, found, strict=True) if each is not None}

    def keep(
        self,
        number: int,
        rows: Sequence[tuple[int, ...]],
        losses: Sequence[tuple[int, LostPackets]],
    ) -> LongArray:
        """Keep what an epoch found: rows of the columns of ``link_counts`` from ``link`` on, and
        the lost packets of links. Return the packets sent and lost on each link,
        int64[2, n_links]; links without a row have none."""
        columns = np.array(rows, np.int64).reshape(-1, 5).T
        names = [column.name for column in LINK_COUNTS.columns[1:]]
        self._counts[number] = dict(zip(names, columns, strict=True))
        self._losses[number] = {
            "link": np.repeat([link for link, _ in losses], [len(lost.hi) for _, lost in losses]),
            "flow_hi": np.concatenate([NOTHING.hi, *(lost.hi for _, lost in losses)]),
            "flow_lo": np.concatenate([NOTHING.lo, *(lost.lo for _, lost in losses)]),
            "lost": np.concatenate([NOTHING.packets, *(lost.packets for _, lost in losses)]),
        }
        counts = np.zeros((2, self.fabric.n_links), np.int64)
        counts[:, columns[0]] = columns[1:3]
        return counts

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the counts of each link and the lost packets of flows, by epoch."""
        return {
            LINK_COUNTS.name: _of_epochs(self._counts, counts.first),
            LINK_LOSSES.name: _of_epochs(self._losses, counts.first),
        }


class LinkMetersRun(LinkRun):
    """The meters of all links in a run with packets."""

    def __init__(self, run: PacketRun, measurement: LinkMeters) -> None:
        from testbed.dataplane import ARRIVING, LEAVING

        super().__init__(run)
        compiled, fabric = measurement.compiled(), run.fabric
        self._measurement = measurement
        blocks = (f"{block}.meter" for block in (LEAVING, ARRIVING))
        self._ends = [MeterBlock(compiled, block, measurement.fields) for block in blocks]
        self._switches = fabric.link_src, fabric.link_dst
        self._begin, self.width = _shares(fabric, self._ends[0].cells)
        ports = fabric.link_src_port, fabric.link_dst_port
        with batch(run.controls):
            for end, switches, port, begin in zip(
                self._ends, self._switches, ports, self._begin, strict=True
            ):
                for link, switch in enumerate(switches.tolist()):
                    share = int(begin[link]), int(self.width[link])
                    run.controls[switch].table(end.links).add([int(port[link])], end.share, share)

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> LongArray:
        """Read and clear the cells of an epoch, and decode them; return the packets sent and lost
        on each link, int64[2, n_links]. Links of a switch that restarted or does not answer have
        none."""
        del rerouted, write
        half = self._ends[0].cells // 2
        here = number % 2 * half, (number % 2 + 1) * half
        cells = self.read_switches(lambda control: self._read_switch(control, *here))
        rows: list[tuple[int, ...]] = []
        losses: list[tuple[int, LostPackets]] = []
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
            lost = self._measurement.decode(*ends) if sent != arrived else NOTHING
            rows.append((link, sent, sent - arrived, int(lost.packets.sum()), int(size[link])))
            losses.append((link, lost))
        return self.keep(number, rows, losses)

    def _read_switch(self, control: SwitchControl, start: int, stop: int) -> list[Cells] | None:
        """Read and clear the cells from ``start`` to ``stop - 1`` of a switch's two meters; return
        them, or None if it does not answer."""
        rows = [row for end in self._ends for row in end.rows]
        found = read_rows(control, rows, start, stop)
        if found is None:
            return None
        return [
            {field: cells[at : at + ROWS] for field, cells in found.items()} for at in (0, ROWS)
        ]


def read_rows(
    control: SwitchControl, rows: Sequence[Mapping[str, str]], start: int, stop: int
) -> Cells | None:
    """Read and clear the elements from ``start`` to ``stop - 1`` of a switch's register arrays.

    Args:
        rows: The array of each field of each row.

    Returns:
        For each field an array [rows, stop - start]; None if the switch does not answer.
    """
    names = [name for row in rows for name in row.values()]
    found = control.read_registers(names)
    if control.lost:
        return None
    cells = {f: np.stack([found[row[f]][start:stop] for row in rows]) for f in rows[0]}
    control.reset_registers(names, start, stop)
    return cells


_NO_IDS = np.zeros(0, np.uint64)
NOTHING = LostPackets(_NO_IDS, _NO_IDS, np.zeros(0, np.int64))


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
