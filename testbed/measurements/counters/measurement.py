# SPDX-License-Identifier: Apache-2.0
"""The measurement ``counters``: what the interfaces of all switches count, which operators read by
SNMP or gNMI.

No method of the testbed reads it. It shows what a silent drop looks like there: the interface has
neither sent the packet nor reported it as dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.arrays import LongArray
from testbed.measurements.measurement import Counts, Measurement, Running, Write
from testbed.record.run_tables import COUNTERS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.measurements.measurement import PacketRun


@dataclass(frozen=True)
class InterfaceCounters:
    """What the interfaces counted in each epoch, int64[E, n_links]: packets that they sent, and
    packets that their queues dropped."""

    packets: LongArray
    queue_drops: LongArray


class Counters(Measurement):
    """The packets that each interface sent and dropped, read after each epoch."""

    name = "counters"
    view = "counters"
    help = "the switches' interfaces: packets sent and dropped by full queues"
    tables = (COUNTERS,)

    def start(self, run: PacketRun) -> Running:
        """Begin with the counters as they are."""
        return InterfacesRun(run)

    def read(self, tables: Mapping[str, Columns]) -> InterfaceCounters:
        """Return the counters of all epochs."""
        table = {name: np.asarray(column) for name, column in tables[COUNTERS.name].items()}
        epochs, links = (int(table[name].max(initial=-1)) + 1 for name in ("epoch", "link"))
        cells = np.zeros((2, epochs, links), np.int64)
        cells[:, table["epoch"], table["link"]] = table["packets"], table["queue_drops"]
        return InterfaceCounters(*cells)


class InterfacesRun(Running):
    """The counters in a run with packets."""

    def __init__(self, run: PacketRun) -> None:
        self._network = run.network
        self._before = self._now()
        self._epochs: list[tuple[int, LongArray]] = []

    def _now(self) -> LongArray:
        """Return packets and drops of all links so far, int64[2, n_links]."""
        counted = self._network.link_packets(), self._network.queue_drops()
        return np.stack(counted).astype(np.int64)

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> LongArray:
        """Read the counters; return what they grew by, int64[2, n_links]."""
        del rerouted, write
        now = self._now()
        grown, self._before = now - self._before, now
        self._epochs.append((number, grown))
        return grown

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return a row for each epoch and link."""
        some = [(n - counts.first, grown) for n, grown in self._epochs if n >= counts.first]
        each = [grown for _, grown in some]
        n = each[0].shape[1]
        packets, drops = np.concatenate(each, axis=1)
        return {
            COUNTERS.name: {
                "epoch": np.repeat([number for number, _ in some], n),
                "link": np.tile(np.arange(n), len(each)),
                "packets": packets,
                "queue_drops": drops,
            }
        }
