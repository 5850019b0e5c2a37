# SPDX-License-Identifier: Apache-2.0
"""What a source's columns must be, whoever sends its frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.network.schedules import Packets
from testbed.network.sources import FRAME_MAX, FedSource, Source

HOSTS = 4


def source(**changes) -> Source:
    packets = Packets(
        time_ns=np.array([10, 20, 20], np.uint64),
        flow=np.array([0, 1, 0], np.uint32),
        size=np.array([60, FRAME_MAX, 0], np.uint16),
    )
    sent = {name: changes.pop(name) for name in list(changes) if hasattr(packets, name)}
    made = Source(
        packets=replace(packets, **sent),
        templates=np.zeros((2, 54), np.uint8),
        template_length=np.array([54, 42], np.uint16),
        src_host=np.array([0, 3], np.int32),
        dst_host=np.array([2, 1], np.int32),
    )
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"time_ns": np.array([20, 10, 30], np.uint64)}, "sorted by time"),
        ({"flow": np.array([0, 1], np.uint32)}, "equal lengths"),
        ({"size": np.array([60, 60], np.uint16)}, "equal lengths"),
        ({"ttl": np.array([1], np.uint8)}, "equal lengths"),
        ({"flow": np.array([0, 2, 0], np.uint32)}, "to its flows"),
        ({"size": np.array([60, FRAME_MAX + 1, 60], np.uint16)}, "may have 1600 bytes"),
        ({"templates": np.zeros((2, 40), np.uint8)}, "may have 40 bytes"),
        ({"template_length": np.array([54, 33], np.uint16)}, "an IP header"),
        ({"templates": np.zeros((1, 54), np.uint8)}, "a template and two hosts for each flow"),
        ({"dst_host": np.array([0], np.int32)}, "a template and two hosts for each flow"),
        ({"src_host": np.array([0, HOSTS], np.int32)}, "must be numbers below 4"),
        ({"dst_host": np.array([0, -1], np.int32)}, "must be numbers below 4"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_reason(changes: dict, reason: str) -> None:
    assert FedSource(source(), HOSTS).sent.tolist() == [0, 0]
    with pytest.raises(ValueError, match=reason):
        FedSource(source(**changes), HOSTS)


def test_a_source_may_have_nothing_to_send_yet() -> None:
    none = np.zeros(0, np.uint32)
    empty = source(time_ns=none, flow=none, size=None, ttl=none.astype(np.uint8))
    packets = FedSource(empty, HOSTS).feeding
    assert packets.n == 0
    assert packets.ttl  # it sends traceroutes all the same
