# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.fat_tree import FatTree
from testbed.network.schedules import Packets
from testbed.traffic.flows import TCP, Traffic
from testbed.traffic.generator import generate
from testbed.traffic.packets import TCP_FRAME
from testbed.traffic.transfers import MIN_PAYLOAD, take_transfers

K4 = FatTree(4)
TRAFFIC = generate(K4, "hadoop", 0.6, 1.5, 1, host_rate_bps=12e6)
PAYLOAD = np.bincount(
    TRAFFIC.flow, TRAFFIC.size.astype(int) - TCP_FRAME, minlength=TRAFFIC.n_flows
).astype(int)
LARGE = (TRAFFIC.protocol == TCP) & (PAYLOAD >= MIN_PAYLOAD)


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1))
def test_transfers_carry_what_is_taken_out_of_the_packets(share, seed):
    left, transfers = take_transfers(TRAFFIC, share, seed, 12e6)
    assert len(transfers) == round(share * LARGE.sum())
    assert LARGE[transfers.flow].all()
    assert len(np.unique(transfers.flow)) == len(transfers)
    assert (transfers.payload == PAYLOAD[transfers.flow]).all()
    assert (np.diff(transfers.start_ns) >= 0).all()
    assert (transfers.rate_bps > 0).all()
    assert (transfers.rate_bps <= 12e6).all()
    stays = ~np.isin(TRAFFIC.flow, transfers.flow)
    for name in ("time_ns", "flow", "size"):
        assert (getattr(left, name) == getattr(TRAFFIC, name)[stays]).all()
    for name in ("src_host", "dst_host", "protocol"):
        assert (getattr(left, name) == getattr(TRAFFIC, name)).all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_transfer_has_its_own_ports_and_the_others_keep_theirs(seed):
    left, transfers = take_transfers(TRAFFIC, 0.5, seed, 12e6)
    flow = transfers.flow
    for host, port in (("src_host", "src_port"), ("dst_host", "dst_port")):
        ends = np.stack((getattr(left, host)[flow], getattr(left, port)[flow]))
        assert len(np.unique(ends, axis=1).T) == len(flow)
        others = np.ones(left.n_flows, bool)
        others[flow] = False
        assert (getattr(left, port) == getattr(TRAFFIC, port))[others].all()
    columns = (left.src_host, left.dst_host, left.src_port, left.dst_port, left.protocol)
    assert len(np.unique(np.stack(columns), axis=1).T) == left.n_flows


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_transfers_are_of_all_sizes(seed):
    """Of the flows in order of size, each run of 1 / share has one."""
    _, transfers = take_transfers(TRAFFIC, 0.25, seed, 12e6)
    sizes = np.sort(PAYLOAD[LARGE])
    rank = np.searchsorted(sizes, np.sort(transfers.payload), side="right")
    steps = (np.arange(len(transfers)) + 1) * len(sizes) / len(transfers)
    assert (rank >= steps - len(sizes) / len(transfers)).all()


def test_a_transfer_begins_and_lasts_as_its_packets_did():
    left, transfers = take_transfers(TRAFFIC, 1.0, 1, 12e6)
    assert not np.isin(left.flow, transfers.flow).any()
    for n in range(0, len(transfers), 5):
        times = TRAFFIC.time_ns[TRAFFIC.flow == transfers.flow[n]].astype(int)
        assert transfers.start_ns[n] == times[0]
        scheduled = (times[-1] - times[0]) / 1e9
        assert transfers.payload[n] * 8 / transfers.rate_bps[n] >= scheduled * (1 - 1e-9)
        slowed = transfers.rate_bps[n] == 12e6
        assert slowed or transfers.payload[n] * 8 / transfers.rate_bps[n] == pytest.approx(
            scheduled
        )


def test_ports_that_a_capture_uses_are_left_to_it():
    n, packets = 2, 20
    traffic = Traffic(
        src_host=np.zeros(n, np.int32),
        dst_host=np.full(n, 9, np.int32),
        src_port=np.full(n, 10_000, np.uint16),
        dst_port=np.array([20_000, 443], np.uint16),
        protocol=np.full(n, TCP, np.uint8),
        packets=Packets(
            np.arange(packets, dtype=np.uint64),
            np.where(np.arange(packets) < 1, 0, 1).astype(np.uint32),
            np.full(packets, 1514, np.uint16),
        ),
    )
    left, transfers = take_transfers(traffic, 1.0, 1, 1e9)
    assert transfers.flow.tolist() == [1]
    assert left.src_port.tolist() == [10_000, 10_001]
    assert left.dst_port.tolist() == [20_000, 20_001]


def test_more_transfers_than_a_host_has_ports_for_are_refused():
    n = 10_001
    traffic = Traffic(
        src_host=np.zeros(n, np.int32),
        dst_host=np.full(n, 9, np.int32),
        src_port=np.arange(n).astype(np.uint16),
        dst_port=np.full(n, 80, np.uint16),
        protocol=np.full(n, TCP, np.uint8),
        packets=Packets(
            np.arange(11 * n, dtype=np.uint64),
            np.repeat(np.arange(n, dtype=np.uint32), 11),
            np.full(11 * n, 1514, np.uint16),
        ),
    )
    with pytest.raises(ValueError, match="TCP"):
        take_transfers(traffic, 1.0, 1, 1e9)
