# SPDX-License-Identifier: Apache-2.0
"""The measurement ``counters``: what the interfaces of all switches count, which operators read by
SNMP or gNMI.

No method of the testbed reads it. It shows what a silent drop looks like there: the interface has
neither sent the packet nor reported it as dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.arrays import FloatArray, LongArray
from testbed.measurements.measurement import Counts, Measurement, Running, Write
from testbed.network.network import CountsQueues
from testbed.record.run_tables import COUNTERS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.measurements.measurement import PacketRun


@dataclass(frozen=True)
class InterfaceCounters:
    """What the interfaces counted in each epoch: packets that they sent, and packets that their
    queues dropped, int64[E, n_links]; and, if links have a rate, the most bytes that a packet found
    waiting, int64[E, n_links], and their mean over the packets, float64[E, n_links]."""

    packets: LongArray
    queue_drops: LongArray
    queue_largest: LongArray | None = None
    queue_mean: FloatArray | None = None


class Counters(Measurement):
    """The packets that each interface sent and dropped, and the depth of its queue, read after each
    epoch."""

    name = "counters"
    view = "counters"
    help = "the switches' interfaces: packets sent and dropped by full queues, depth of the queues"
    tables = (COUNTERS,)

    def start(self, run: PacketRun) -> Running:
        """Begin with the counters as they are."""
        return InterfacesRun(run)

    def read(self, tables: Mapping[str, Columns]) -> InterfaceCounters:
        """Return the counters of all epochs."""
        table = {name: np.asarray(column) for name, column in tables[COUNTERS.name].items()}
        epochs, links = (int(table[name].max(initial=-1)) + 1 for name in ("epoch", "link"))

        def cells(name: str) -> Any:
            """Return a column by epoch and link; None if the table lacks it."""
            if name not in table:
                return None
            found = np.zeros((epochs, links), table[name].dtype)
            found[table["epoch"], table["link"]] = table[name]
            return found

        return InterfaceCounters(*(cells(each) for each in InterfaceCounters.__annotations__))


class InterfacesRun(Running):
    """The counters in a run with packets."""

    def __init__(self, run: PacketRun) -> None:
        self._network = run.network
        self._before, self._summed = self._now(), self._depths()
        self._epochs: list[tuple[int, dict[str, Any]]] = []

    def _now(self) -> LongArray:
        """Return packets and drops of all links so far, int64[2, n_links]."""
        counted = self._network.link_packets(), self._network.queue_drops()
        return np.stack(counted).astype(np.int64)

    def _depths(self) -> LongArray | None:
        """Return what `testbed.network.network.CountsQueues` knows, int64[2, n_links]; None if the
        network has no queues, or does not look into them."""
        network = self._network
        depths = network.queue_depths() if isinstance(network, CountsQueues) else None
        return None if depths is None else depths.astype(np.int64)

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> LongArray:
        """Read the counters; return what they grew by, int64[2, n_links]."""
        del rerouted, write
        now, depths = self._now(), self._depths()
        grown = now - self._before
        found: dict[str, Any] = {"packets": grown[0], "queue_drops": grown[1]}
        if depths is not None and self._summed is not None:
            sent = np.where(grown[0] > 0, grown[0], np.nan)
            found["queue_largest"] = depths[0]
            found["queue_mean"] = (depths[1] - self._summed[1]) / sent
        self._before, self._summed = now, depths
        self._epochs.append((number, found))
        return grown

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return a row for each epoch and link."""
        some = [(n - counts.first, found) for n, found in self._epochs if n >= counts.first]
        each = [found for _, found in some]
        n = len(each[0]["packets"])
        numbers = {
            "epoch": np.repeat([number for number, _ in some], n),
            "link": np.tile(np.arange(n), len(each)),
        }
        columns = {name: np.concatenate([found[name] for found in each]) for name in each[0]}
        return {COUNTERS.name: numbers | columns}
