# SPDX-License-Identifier: Apache-2.0
"""Traffic of training: collectives of ranks that exchange chunks of a tensor in steps, for ever.

``ring-allreduce``: the ranks form a ring, and in each of the 2 (n - 1) steps of an iteration every
rank sends a chunk, the n-th part of the tensor, to the next one. ``all-to-all``: in the k-th of
n - 1 steps every rank sends a chunk to the k-th rank after it. ``tree``: the ranks form a binary
tree, and in each of n steps every rank sends a chunk to its parent and to its children. The seed
draws which host has which rank. Each pair of ranks has one connection, as RoCEv2's (UDP port 4791);
those within a rack cross no link between switches and are not sent.

Steps follow each other at a fixed pace, at which a rank sends `load` of its line rate. A rank does
not wait for what it receives, and does not send lost packets again: a loss costs no time here. With
``:go-back-n`` or ``:selective-repeat`` it does both (`testbed.traffic.reacting`), in virtual time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast, get_args

import numpy as np

from testbed.arrays import LongArray
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.ranks import Recovery
from testbed.traffic.flows import MAX_FRAME, MIN_FRAME, UDP, Traffic
from testbed.traffic.generator import (
    FRAME_HEADERS,
    PAYLOAD,
    WIRE_BITS,
    TrafficError,
    Trains,
    frames_before,
    serialise,
)
from testbed.traffic.reacting import Kind, messages_of, reacting, tree_connections

COLLECTIVES: tuple[Kind, ...] = get_args(Kind)

_ROCE = 4791
_TENSOR_MB = 16.0
_MOST_FRAMES = 65_535  # of a train
_JITTER = 0.1  # of a step's pause, by which a rank is late
_OPTION = re.compile(r"(ranks)=(\d{1,9})|(mb)=(\d{1,9}(?:\.\d{1,9})?)|(go-back-n|selective-repeat)")


@dataclass(frozen=True)
class Collective:
    """A collective: which one, its ranks (0: all hosts), the bytes of its tensor, and what senders
    do about lost packets; None: nothing."""

    kind: Kind
    ranks: int = 0
    tensor: float = _TENSOR_MB * 1e6
    recovery: Recovery | None = None


def collective(traffic: str) -> Collective | None:
    """Return the collective that the setting TRAFFIC names; None if it names none.

    >>> collective("ring-allreduce:ranks=8:mb=0.5")
    Collective(kind='ring-allreduce', ranks=8, tensor=500000.0, recovery=None)
    >>> collective("websearch")

    Raises:
        TrafficError: An option is unknown or out of range (one line).
    """
    name, *options = traffic.split(":")
    if name not in COLLECTIVES:
        return None
    kind = cast(Kind, name)
    ranks, tensor, recovery = 0, _TENSOR_MB * 1e6, None
    for option in options:
        found = _OPTION.fullmatch(option)
        if found is None:
            raise TrafficError(
                f"TRAFFIC={traffic}: use {kind}:ranks=16:mb=16, and :go-back-n or "
                ":selective-repeat for ranks that react to losses"
            )
        if found[1]:
            ranks = int(found[2])
        elif found[5]:
            recovery = cast(Recovery, found[5])
        else:
            tensor = float(found[4]) * 1e6
    if ranks == 1 or tensor < 1:
        raise TrafficError(f"TRAFFIC={traffic}: use 2 ranks or more, and a tensor of some bytes")
    return Collective(kind, ranks, tensor, recovery)


@dataclass(frozen=True)
class _Steps:
    """The steps of a run, with a chunk of each rank in each.

    Attributes:
        frames: The frames of a chunk.
        last_size: The bytes of its last frame.
        step_ns: The time from step to step.
        iteration: The steps of an iteration.
    """

    frames: int
    last_size: int
    step_ns: float
    iteration: int


def iterations(
    wanted: Collective, n_hosts: int, load: float, duration_s: float, host_rate_bps: float
) -> float:
    """Return how many iterations of a collective fit into a run.

    Raises:
        TrafficError: There are fewer hosts than ranks, or the chunks are too large (one line).
    """
    steps = _steps(wanted, n_hosts, load, host_rate_bps)
    return duration_s * 1e9 / steps.step_ns / steps.iteration


def _steps(wanted: Collective, n_hosts: int, load: float, host_rate_bps: float) -> _Steps:
    n = wanted.ranks or n_hosts
    if n > n_hosts:
        raise TrafficError(f"TRAFFIC={wanted.kind} has {n} ranks, and the fabric {n_hosts} hosts")
    chunk = int(np.ceil(wanted.tensor / n))
    frames = -(-chunk // PAYLOAD)
    if frames > _MOST_FRAMES:
        most = _MOST_FRAMES * PAYLOAD * n // 1_000_000
        raise TrafficError(f"TRAFFIC={wanted.kind}: with {n} ranks use at most mb={most}")
    last = max(chunk - (frames - 1) * PAYLOAD + FRAME_HEADERS, MIN_FRAME)
    busy_ns = frames * WIRE_BITS * 1e9 / host_rate_bps
    steps = {"ring-allreduce": 2 * (n - 1), "all-to-all": n - 1, "tree": n}[wanted.kind]
    most = np.bincount(tree_connections(n)[0]).max() if wanted.kind == "tree" else 1
    return _Steps(frames, last, int(most) * busy_ns / load, steps)


def send_collective(
    wanted: Collective,
    topology: PacketFabric,
    load: float,
    duration_s: float,
    seed: int,
    host_rate_bps: float,
) -> Traffic:
    """Return the packets of a collective that is repeated until the run ends.

    Args:
        wanted: The collective.
        topology: The fabric, whose hosts are the ranks.
        load: The share of its line rate at which a rank sends.
        duration_s: The length of the run in seconds; chunks are cut there.
        seed: Draws the host of each rank, ports, and how late each rank begins each step.
        host_rate_bps: The line rate of the hosts' links in bits a second.

    Raises:
        TrafficError: There are fewer hosts than ranks, the chunks are too large, or no two ranks
            are in different racks (one line).
    """
    plan = _steps(wanted, topology.n_hosts, load, host_rate_bps)
    rng = np.random.default_rng([seed, 0xA11])
    n = wanted.ranks or topology.n_hosts
    host = rng.permutation(topology.n_hosts)[:n].astype(np.int32)
    frame_ns = WIRE_BITS * 1e9 / host_rate_bps
    if wanted.recovery is not None:
        traffic = reacting(
            messages_of(wanted.kind, n),
            wanted.recovery,
            topology,
            host,
            rng,
            frames=plan.frames,
            last_size=plan.last_size,
            duration_s=duration_s,
            load=load,
            frame_ns=frame_ns,
        )
        if not traffic.n_flows:
            raise _within_racks(wanted, n)
        return traffic
    step = np.arange(int(np.ceil(duration_s * 1e9 / plan.step_ns)))
    rank, to = _pairs(wanted.kind, n, step)
    flow, flow_of = np.unique(rank * n + to, return_inverse=True)
    flow_of = flow_of.reshape(-1)
    src, dst = host[flow // n], host[flow % n]
    sent = topology.host_tor[src] != topology.host_tor[dst]
    if not sent.any():
        raise _within_racks(wanted, n)
    pause = plan.step_ns - plan.frames * frame_ns
    late = rng.random(len(rank)) * _JITTER * pause
    ready = (step.repeat(len(rank) // len(step)) * plan.step_ns + late).astype(np.int64)
    start = serialise(host[rank], ready, np.full(len(ready), int(np.ceil(plan.frames * frame_ns))))
    whole = np.full(len(start), plan.frames)
    frames = frames_before(int(duration_s * 1e9) - start, whole, frame_ns)
    kept = np.flatnonzero((frames > 0) & sent[flow_of])
    kept = kept[np.argsort(start[kept], kind="stable")]
    n_flows = int(sent.sum())
    return Traffic(
        src_host=src[sent],
        dst_host=dst[sent],
        src_port=rng.integers(49152, 65536, n_flows).astype(np.uint16),
        dst_port=np.full(n_flows, _ROCE, np.uint16),
        protocol=np.full(n_flows, UDP, np.uint8),
        packets=Trains(
            start[kept],
            (np.cumsum(sent) - 1)[flow_of[kept]].astype(np.uint32),
            frames[kept].astype(np.uint16),
            np.where(frames[kept] == plan.frames, plan.last_size, MAX_FRAME).astype(np.uint16),
            frame_ns,
        ),
    )


def _pairs(kind: Kind, n: int, step: LongArray) -> tuple[LongArray, LongArray]:
    """Return which rank sends a chunk to which, step by step."""
    if kind == "tree":
        sender, receiver = tree_connections(n)
        return np.tile(sender, len(step)), np.tile(receiver, len(step))
    distance = step % (n - 1) + 1 if kind == "all-to-all" else np.ones_like(step)
    rank = np.tile(np.arange(n), len(step))
    return rank, (rank + distance.repeat(n)) % n


def _within_racks(wanted: Collective, n: int) -> TrafficError:
    return TrafficError(f"TRAFFIC={wanted.kind}: no two of its {n} ranks are in different racks")
