# SPDX-License-Identifier: Apache-2.0
"""Collectives whose ranks wait for what they receive, and send lost packets again.

A message begins when its rank has received what it needs: in a ring, the chunk of the step before;
in an all-to-all, likewise; in a tree, a chunk of its children on the way up, and of its parent on
the way down. So a packet that is lost in silence costs all ranks time, and that is measured.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from testbed.arrays import IntArray, LongArray
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.ranks import Messages, Ranks, Recovery
from testbed.network.schedules import Packets
from testbed.traffic.flows import MAX_FRAME, UDP, Traffic

Kind = Literal["ring-allreduce", "all-to-all", "tree"]
"""What ranks exchange: sums around a ring, a part from each to each, or sums up a tree and down."""

TIMEOUT_NS = 1_000_000
"""After so long without an answer packets are sent again: 25 round trips of an empty fabric. IRN
(SIGCOMM 2018) waits for .1 to .3 ms, adapters for longer by default (67 ms)."""
REORDER = 32
"""Packets behind a missing one after which selective repeat asks for it, as packets overtake."""


def messages_of(kind: Kind, n: int) -> Messages:
    """Return the messages of an iteration of a collective of ``n`` ranks.

    >>> ring = messages_of("ring-allreduce", 3)
    >>> ring.sender.tolist(), ring.receiver.tolist(), len(ring.connection)
    ([0, 1, 2], [1, 2, 0], 12)
    """
    if kind == "tree":
        return _tree(n)
    if kind == "ring-allreduce":
        steps, sender = 2 * (n - 1), np.arange(n)
        receiver = (sender + 1) % n
        of = sender.repeat(steps)
        number = np.arange(len(of))
        former = number[number % steps < steps - 1]
        latter = receiver[of[former]] * steps + former % steps + 1
    else:
        sender, step = np.divmod(np.arange(n * (n - 1)), n - 1)
        receiver = (sender + step + 1) % n
        of = np.arange(len(sender))
        former = of[step < n - 2]
        latter = receiver[former] * (n - 1) + step[former] + 1
    return _messages(sender, receiver, of, np.stack((former, latter), axis=1))


def tree_connections(n: int) -> tuple[LongArray, LongArray]:
    """Return the senders and the receivers of a binary tree's connections, up and then down."""
    child = np.arange(1, n)
    parent = (child - 1) // 2
    return np.concatenate((child, parent)), np.concatenate((parent, child))


def _tree(n: int) -> Messages:
    """Return the messages of a binary tree: n chunks up to its root, rank 0, and down again."""
    sender, receiver = tree_connections(n)
    child = np.arange(1, n)
    parent = (child - 1) // 2
    up, down = child - 1, child - 1 + n - 1  # the connections of each rank but the root
    pairs = [(up[c - 1], up[p - 1]) for c, p in zip(child, parent, strict=True) if p]
    pairs += [(down[p - 1], down[c - 1]) for c, p in zip(child, parent, strict=True) if p]
    top = child[parent == 0]
    pairs += [(up[one - 1], down[other - 1]) for one in top for other in top]
    former, latter = np.asarray(pairs, np.int64).reshape(-1, 2).T
    chunk = np.arange(n)
    after = np.stack([(each[:, None] * n + chunk).reshape(-1) for each in (former, latter)], axis=1)
    return _messages(sender, receiver, np.arange(len(sender)).repeat(n), after)


def _messages(sender: LongArray, receiver: LongArray, of: LongArray, after: LongArray) -> Messages:
    return Messages(*(each.astype(np.int32) for each in (sender, receiver, of, after)))


def reacting(
    messages: Messages,
    recovery: Recovery,
    topology: PacketFabric,
    host: IntArray,
    ports: np.random.Generator,
    *,
    frames: int,
    last_size: int,
    duration_s: float,
    load: float,
    frame_ns: float,
) -> Traffic:
    """Return the flows of ranks that react, and no packets of their own.

    Args:
        messages: The messages of an iteration.
        recovery: What senders do about lost packets.
        topology: The fabric.
        host: The host of each rank, int32[R].
        ports: Draws the connections' source ports.
        frames: The frames of a message.
        last_size: The bytes of its last frame.
        duration_s: The length of the run in seconds.
        load: The share of an iteration without losses in which ranks send.
        frame_ns: The time in ns that a host's link takes for a full frame.
    """
    src, dst = host[messages.sender], host[messages.receiver]
    sent = topology.host_tor[src] != topology.host_tor[dst]
    flow = np.where(sent, np.cumsum(sent) - 1, -1).astype(np.int32)
    n = int(sent.sum())
    of_sender = np.bincount(messages.sender[messages.connection])
    busy_ns = float(of_sender.max()) * frames * frame_ns
    none = np.zeros(0, np.uint64)
    return Traffic(
        src_host=np.concatenate((src[sent], dst[sent])),
        dst_host=np.concatenate((dst[sent], src[sent])),
        src_port=ports.integers(49152, 65536, 2 * n).astype(np.uint16),
        dst_port=np.full(2 * n, 4791, np.uint16),
        protocol=np.full(2 * n, UDP, np.uint8),
        packets=Packets(none, none.astype(np.uint32), none.astype(np.uint16)),
        ranks=Ranks(
            messages,
            host,
            flow,
            frames,
            last_size,
            MAX_FRAME,
            recovery,
            REORDER,
            frame_ns=round(frame_ns),
            timeout_ns=TIMEOUT_NS,
            pause_ns=round(busy_ns * (1 / load - 1)),
            near_ns=round(frames * frame_ns),
            end_ns=round(duration_s * 1e9),
            most=int(duration_s * 1e9 / busy_ns) + 2,
        ),
    )
