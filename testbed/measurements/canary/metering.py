# SPDX-License-Identifier: Apache-2.0
"""Canary's meters and selection of flows in a run without packets, segment by segment.

The controller of `testbed.measurements.canary.selection` without switches. On each segment flows
arrive by a Poisson process and send at their rates. While a segment had fewer than ``alpha``
packets or ``beta`` flows in the epoch before (at first none), up to ``delta`` of the flows of which
more than ``eta`` packets arrive at its downstream switch in an epoch are selected; what they send
from then on is counted until they end. So a segment that lets nothing through selects no flow and
stays unobserved, as in the packet networks.

What it leaves out: a flow over two segments is drawn for each by itself; losses before a segment
do not thin its flows; HashPipe misses no flow; the tables have room for every rule, and the
meters are as large as that takes (`meter_upload`).
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray, FloatArray
from testbed.dataplane import BUCKETS, ROWS
from testbed.fabric.segments import Segments
from testbed.kernels import Kernels
from testbed.measurements.canary.meters import upload_bytes
from testbed.measurements.canary.selection import SelectionParameters
from testbed.traffic.generator import PAYLOAD, FlowProcess

_KERNELS = Kernels.beside(__file__)
_POOL = 1 << 16  # flows drawn beforehand, of which the segments draw theirs
_CHUNK = 1 << 15  # segments
_CLEAN = 0.99


@dataclass(frozen=True)
class Metered:
    """The counts of the meters.

    Attributes:
        sent: Packets that the upstream meter of each segment counts in each epoch, int32[E, S].
        flows: The most flows that each segment monitored in an epoch, int32[S].
        installed, removed: Flows that were selected, and that ended, int32[S].
        watched: Flows with a rule, summed over the epochs, int32[S].
        reached: Epochs in which a segment monitored at least ``beta`` flows, int32[S].
    """

    sent: npt.NDArray[np.int32]
    flows: npt.NDArray[np.int32]
    installed: npt.NDArray[np.int32]
    removed: npt.NDArray[np.int32]
    watched: npt.NDArray[np.int32]
    reached: npt.NDArray[np.int32]


class _Pools(NamedTuple):
    """Flows to draw from, float64[:, 2]: the packets of each, and its packets an epoch."""

    n_new: int
    n_old: int
    new: FloatArray
    old: FloatArray


class _Selection(NamedTuple):
    """`SelectionParameters` for the kernel; ``latency`` is in epochs."""

    alpha: float
    beta: int
    delta: int
    eta: float
    latency: float


class _Flows(NamedTuple):
    """What the kernel works in: flows of one segment that are under way, [room] each."""

    left: FloatArray
    rate: FloatArray
    chosen: BoolArray
    room: int


def meter(
    process: FlowProcess,
    share: FloatArray,
    success: FloatArray,
    epochs: int,
    epoch_s: float,
    parameters: SelectionParameters,
    seed: int,
) -> Metered:
    """Run the selection of flows on every segment and return the meters' counts.

    Args:
        process: The process by which flows arrive.
        share: The share of the flows that crosses each segment, float64[S].
        success: The probability to cross each segment in each epoch, float64[1 or E, S].
        epochs: The number of epochs.
        epoch_s: The length of an epoch in seconds.
        parameters: alpha, beta, delta, eta and the time from a digest to its rules.
        seed: Equal arguments and seeds give equal counts.

    Cost: the flows of all segments, some 10 ns each, on all processors.
    """
    n = len(share)
    root = np.random.SeedSequence([seed, 0x3E7E5])
    first, *seeds = root.spawn(1 + -(-n // _CHUNK))
    rng = np.random.default_rng(first)
    rate, size = process.rates(_POOL, rng), process.sizes.quantile(rng.random(_POOL))
    old_rate, left = process.ongoing(_POOL, rng)
    per_epoch = epoch_s / 8 / PAYLOAD
    new = np.stack((np.ceil(size / PAYLOAD), rate * per_epoch), axis=1)
    old = np.stack((left / PAYLOAD, old_rate * per_epoch), axis=1)
    # flows of no more packets are never selected
    new, old = (pool[pool[:, 0] > parameters.eta] for pool in (new, old))
    sent = np.zeros((epochs, n), np.int32)
    flows, installed, removed, watched, reached = np.zeros((5, n), np.int32)
    arrivals = process.arrivals * epoch_s * share * (len(new) / _POOL)
    ongoing = process.arrivals * process.mean_duration_s * share * (len(old) / _POOL)
    room = float(ongoing.max(initial=0.0))
    room = int(room + 12 * np.sqrt(room) + 200)

    pools = _Pools(len(new), len(old), new, old)
    latency = parameters.latency_ns / 1e9 / epoch_s
    selection = _Selection(
        parameters.alpha, parameters.beta, parameters.delta, parameters.eta, latency
    )

    def run(chunk: int) -> None:
        """Count on one chunk of the segments, into the arrays above."""
        _KERNELS.meter(
            rng=np.random.default_rng(seeds[chunk]),
            begin=chunk * _CHUNK,
            end=min((chunk + 1) * _CHUNK, n),
            pools=pools,
            selection=selection,
            working=_Flows(np.empty(room), np.empty(room), np.empty(room, np.bool_), room),
            arrivals=arrivals,
            ongoing=ongoing,
            success=np.ascontiguousarray(success),
            sent=sent,
            flows=flows,
            installed=installed,
            removed=removed,
            watched=watched,
            reached=reached,
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, range(len(seeds))))
    return Metered(sent, flows, installed, removed, watched, reached)


def meter_upload(metered: Metered, segments: Segments) -> int:
    """Return the bytes of one epoch's upload of all meters, with as many buckets as flows need.

    The rows of every meter are so wide that a flow of the busiest switch has a clean bucket with
    probability 0.99 by theorem 2, and at least as wide as the packet networks'.
    """
    ends = (segments.upstream, segments.downstream)
    busiest = max(np.bincount(end, metered.flows).max(initial=0.0) for end in ends)
    collide = (1 - _CLEAN) ** (1 / ROWS)
    buckets = max(BUCKETS, math.ceil((busiest - 1) / -math.log(1 - collide)))
    return upload_bytes(len(np.unique(np.concatenate(ends))), buckets)
