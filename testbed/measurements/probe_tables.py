# SPDX-License-Identifier: Apache-2.0
"""The tables of probes over known paths, which every plan of probes writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.paths import Paths
from testbed.network.flow import Carried, send
from testbed.network.network import CountsQueues
from testbed.record.run_tables import PROBE_COUNTS, PROBE_PATHS
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.measurements.measurement import SimulatedRun
    from testbed.network.network import Network

TABLES = PROBE_PATHS, PROBE_COUNTS


@dataclass(frozen=True)
class ProbeRows:
    """The probes of one plan: its name, its paths, and a row for each path and pair of hosts.

    ``path``, ``src_host`` and ``dst_host`` are int32[N], ``sent`` and ``lost`` int64[N];
    ``travel_us``, float64[N], is the mean time that probes took, None if it is not known.
    """

    plan: str
    paths: Paths
    path: IntArray
    src_host: IntArray
    dst_host: IntArray
    sent: LongArray
    lost: LongArray
    travel_us: FloatArray | None = None

    @property
    def tables(self) -> dict[str, Columns]:
        """Return the rows as the tables ``probe_paths`` and ``probe_counts``."""
        times = {} if self.travel_us is None else {"travel_us": self.travel_us}
        return {
            PROBE_PATHS.name: {"plan": [self.plan] * len(self.paths), "path": self.paths},
            PROBE_COUNTS.name: {
                "path": self.path,
                "src_host": self.src_host,
                "dst_host": self.dst_host,
                "sent": self.sent,
                "lost": self.lost,
                **times,
            },
        }


def travel_us(network: Network, number: int) -> FloatArray | None:
    """Return the mean time in us that the packets of each flow of a source took, float64[F]; None
    if the network does not know it."""
    return network.travel_us(number) if isinstance(network, CountsQueues) else None


def send_probes(
    run: SimulatedRun,
    paths: Paths,
    path: IntArray,
    ends: tuple[IntArray, IntArray],
    packets: int,
    rng: np.random.Generator,
) -> Carried:
    """Send ``packets`` probes over path ``path[i]`` for each i, spread evenly over the epochs, in a
    run without packets, and return what was lost.

    Args:
        run: The run.
        paths: The paths.
        path: The path of each row, int32[N].
        ends: The sender and the receiver of each row, int32[N] each, whose links are crossed too.
        packets: The probes of each row.
        rng: Draws the losses.
    """
    parts, loss = [], run.loss
    if run.hosts is not None:
        paths, path = (
            run.hosts.around(paths.take(path), *ends),
            np.arange(len(path), dtype=np.int32),
        )
    for epoch, rates in enumerate(loss):
        now = packets * (epoch + 1) // len(loss) - packets * epoch // len(loss)
        parts.append(send(rates[None, :], paths, np.full(len(path), now), rng, path))
    fields = ("lost", "packets", "drops")
    return Carried(*(np.sum([getattr(part, name) for part in parts], axis=0) for name in fields))
