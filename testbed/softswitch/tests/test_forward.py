# SPDX-License-Identifier: Apache-2.0
"""A packet of which only the head exists, forwarded in place: as if it were whole and copied."""

from __future__ import annotations

import ctypes

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from canary_softswitch import Program, Switch
from canary_softswitch.runtime.program import Arrival, Result
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import PROGRAM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.traffic.generator import generate
from testbed.traffic.packets import headers

TOPOLOGY = FatTree(4)
TRAFFIC = generate(TOPOLOGY, "hadoop", 0.05, 0.05, seed=3)
FRAMES, LENGTHS = headers(TRAFFIC, TOPOLOGY)
PROGRAM_ = Program.load(PROGRAM, observe=VERDICT.field)
HEAD, SPARE = 96, 40


def tor() -> Switch:
    switch = Switch(PROGRAM_, seed=1)
    install_forwarding(TOPOLOGY, 0, switch, mask=1, monitor=True)
    return switch


def forward(switch: Switch, port: int, frame: bytes, stored: int) -> list[tuple[int, int, bytes]]:
    """Port, length and stored bytes of what leaves a switch that may write over the packet."""
    memory = np.zeros(SPARE + HEAD, np.uint8)
    memory[SPARE : SPARE + stored] = np.frombuffer(frame[:stored], np.uint8)
    result, at = Result(), memory.ctypes.data
    arrival = Arrival(at, at + SPARE, 0, port, stored, len(frame))
    switch.program.lib.ss_forward(switch.handle, arrival, None, None, result)
    out = [result.packets[i] for i in range(result.n)]
    assert all(at <= p.data and p.data + p.stored <= at + len(memory) for p in out)
    return [(p.port, p.length, ctypes.string_at(p.data, p.stored)) for p in out]


@settings(max_examples=50, deadline=None)
@given(
    flow=st.integers(0, TRAFFIC.n_flows - 1),
    ttl=st.sampled_from([1, 2, 64]),
    payload=st.sampled_from([0, 1, 30, 1446, 8946]),
)
def test_the_head_of_a_packet_goes_the_way_of_the_whole(flow: int, ttl: int, payload: int) -> None:
    frame = bytearray(FRAMES[flow, : LENGTHS[flow]].tobytes()) + bytes(payload)
    frame[22] = ttl
    frame[24:26] = bytes(2)
    words = sum(int.from_bytes(frame[i : i + 2], "big") for i in range(14, 34, 2))
    words = (words & 0xFFFF) + (words >> 16)
    frame[24:26] = (~(words + (words >> 16)) & 0xFFFF).to_bytes(2, "big")
    whole, head = tor(), tor()
    expected = whole.process(1, bytes(frame))
    found = forward(head, 1, bytes(frame), min(len(frame), HEAD))
    assert [(port, length) for port, length, _ in found] == [(p, len(d)) for p, d in expected]
    assert all(d.startswith(stored) for (_, d), (_, _, stored) in zip(expected, found, strict=True))
    assert whole.program.head_bytes is not None
    assert whole.program.head_bytes <= HEAD
