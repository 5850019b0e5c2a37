# SPDX-License-Identifier: Apache-2.0
"""mark_to_drop of the standard metadata, of an action's argument and of a copy."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from canary_softswitch import Program, Switch

FORWARD, DIRECT, ARGUMENT, GROUP, CHOSEN_LATER, COPY, EGRESS = range(7)


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    switch = Switch(load("drops"))
    switch.set_multicast_group(1, [(5, 0), (6, 0)])
    return switch


def packet(op: int) -> bytes:
    return bytes([op, 0]) + bytes(4) + b"payload"


@pytest.mark.parametrize("op", [DIRECT, ARGUMENT, GROUP, EGRESS])
def test_dropped(sw: Switch, op: int) -> None:
    assert sw.process(1, packet(op)) == []


def test_forwarded(sw: Switch) -> None:
    assert sw.process(1, packet(FORWARD)) == [(2, packet(FORWARD))]
    assert sw.process(1, packet(CHOSEN_LATER)) == [(3, packet(CHOSEN_LATER))]


def test_drop_of_a_copy_is_seen_in_the_copy_alone(sw: Switch) -> None:
    [(port, data)] = sw.process(1, packet(COPY))
    assert port == 2
    assert struct.unpack(">HH", data[2:6]) == (511, 0)
