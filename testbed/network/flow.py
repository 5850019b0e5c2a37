# SPDX-License-Identifier: Apache-2.0
"""A network without packets: a fabric whose links lose a share of what crosses them.

What is sent is counted in packets over a path. On each link of it a binomial share is lost, and
what is lost does not reach the next link. There are no queues, no congestion and no clock but
epochs: a packet sees the loss rates of the epoch it is sent in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.faults.plan import FaultError, FaultPlan
from testbed.kernels import Kernels

_KERNELS = Kernels.beside(__file__)

FLOW_RECORDS = 4_000_000
"""The most flow records kept of a run without packets on a fabric of few hosts; more flows are
sampled."""

RECORDS_OF_HOST = 256
"""The records for each host from which that limit is larger, as each host keeps those of its own
flows: from 15,625 hosts on, so with K=48. By default a host begins some 190 flows in a run."""


def flow_records(n_hosts: int) -> int:
    """Return the most flow records kept of a run without packets on a fabric of ``n_hosts``."""
    return max(FLOW_RECORDS, RECORDS_OF_HOST * n_hosts)


@dataclass(frozen=True)
class Carried:
    """The result of `send`.

    Attributes:
        lost: Packets of each row that were lost, int64[N].
        packets: Packets that began to cross each link, int64[n_links].
        drops: Packets that each link lost, int64[n_links].
    """

    lost: LongArray
    packets: LongArray
    drops: LongArray


@dataclass(frozen=True)
class FlowRecords:
    """Flows as end hosts and a fabric with path tracing see them; all arrays are [F].

    Attributes:
        src_tor, dst_tor: ToRs of the sender and the receiver, int32.
        sent, lost: Packets, int64.
        paths: The path of each flow.
    """

    src_tor: IntArray
    dst_tor: IntArray
    sent: LongArray
    lost: LongArray
    paths: Paths

    def __len__(self) -> int:
        return len(self.sent)

    def take(self, rows: npt.NDArray[np.integer]) -> FlowRecords:
        """Return the flows with the indices ``rows`` (int[R]), in that order."""
        return FlowRecords(
            self.src_tor[rows],
            self.dst_tor[rows],
            self.sent[rows],
            self.lost[rows],
            self.paths.take(rows),
        )


def link_loss(
    fabric: Fabric,
    plan: FaultPlan,
    epochs: int,
    epoch_s: float,
    noise: FloatArray | None = None,
) -> FloatArray:
    """Return the loss rate of each link in each epoch, float64[E, n_links].

    E is 1 if the rates never change.

    Args:
        fabric: The fabric.
        plan: The faults. The rate of one that is active for part of an epoch is weighted by it.
        epochs: The number of epochs.
        epoch_s: The length of an epoch in seconds.
        noise: The loss rate of each link while it is healthy (`testbed.faults.plan`),
            float64[n_links]; None for none.

    Raises:
        FaultError: A fault matches some flows only, which needs packets with headers.
    """
    healthy = np.zeros(fabric.n_links) if noise is None else noise
    scheduled = any(fault.schedule for fault in plan.faults)
    loss = np.tile(healthy, (epochs if scheduled else 1, 1))
    edges = np.arange(len(loss) + 1) * epoch_s
    for fault in plan.faults:
        if fault.match is not None:
            raise FaultError(
                f"the fault of {fabric.link_names[fault.link]} matches only some flows, but "
                "BACKEND=flow has no packet headers: use BACKEND=virtual"
            )
        active = np.zeros(len(loss)) if fault.schedule else np.ones(len(loss))
        for start, end in fault.schedule:
            active += np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0, None)
        share = active / epoch_s if fault.schedule else active
        link = fault.link
        loss[:, link] = share * fault.rate + (1 - share) * healthy[link]
    return loss


def send(
    loss: FloatArray,
    paths: Paths,
    sent: npt.NDArray[np.integer],
    rng: np.random.Generator,
    path: npt.NDArray[np.integer] | None = None,
    epoch: npt.NDArray[np.integer] | None = None,
) -> Carried:
    """Send ``sent[i]`` packets along a path, for every row i, and return what was lost.

    Args:
        loss: The result of `link_loss`.
        paths: The paths.
        sent: Packets of each row, int[N].
        rng: Draws the losses.
        path: The path of each row, int[N]; by default row i takes path i.
        epoch: The epoch of each row, int[N]; by default the first.
    """
    n = len(sent)
    path = np.arange(len(paths), dtype=np.int32) if path is None else path.astype(np.int32)
    epoch = np.zeros(n, np.int32) if epoch is None else epoch.astype(np.int32)
    epoch = np.minimum(epoch, len(loss) - 1)
    if not (len(path) == len(epoch) == n):
        raise ValueError(f"{n} rows, but {len(path)} paths and {len(epoch)} epochs")
    lost = np.zeros(n, np.int64)
    packets, drops = np.zeros(loss.shape[1], np.int64), np.zeros(loss.shape[1], np.int64)
    _KERNELS.send_packets(
        rng=rng,
        loss=np.ascontiguousarray(loss, np.float64),
        ptr=paths.ptr,
        links=paths.links,
        path=path,
        epoch=epoch,
        sent=sent.astype(np.int64),
        lost=lost,
        packets=packets,
        drops=drops,
    )
    return Carried(lost, packets, drops)
