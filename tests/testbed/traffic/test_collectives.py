# SPDX-License-Identifier: Apache-2.0
"""Collectives: who sends to whom, how much, and when."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from testbed.errors import UserError
from testbed.fabric.topologies import make_packet_fabric
from testbed.traffic.collectives import Collective, collective, iterations, send_collective
from testbed.traffic.demand import Demand, arrivals_without_packets, make_traffic
from testbed.traffic.flows import UDP, Traffic
from tests.testbed.network.test_schedules import check_blocks

FABRIC = make_packet_fabric("leaf-spine:4:2", 4, 1)  # 8 hosts, 2 at each leaf
RATE = 1e9


def sent(wanted: Collective, load: float = 0.5, seconds: float = 0.05, seed: int = 1) -> Traffic:
    return send_collective(wanted, FABRIC, load, seconds, seed, RATE)


def payload(traffic: Traffic) -> np.ndarray:
    """The bytes of a tensor that each flow carries."""
    return np.bincount(traffic.flow, traffic.size - 54.0, traffic.n_flows)


def test_a_ring_has_one_connection_from_each_rank_to_the_next() -> None:
    traffic = sent(Collective("ring-allreduce", 8, 1e6))
    src, dst = traffic.src_host, traffic.dst_host
    assert len({*src.tolist()}) == len({*dst.tolist()}) == len(src) <= 8
    assert (FABRIC.host_tor[src] != FABRIC.host_tor[dst]).all()
    assert (traffic.protocol == UDP).all() and (traffic.dst_port == 4791).all()


def test_in_an_iteration_each_rank_sends_nearly_twice_the_tensor() -> None:
    wanted = Collective("ring-allreduce", 8, 1e6)
    one = 0.05 / iterations(wanted, 8, 0.5, 0.05, RATE)
    traffic = sent(wanted, seconds=one)
    assert payload(traffic).tolist() == pytest.approx([2 * 7 / 8 * 1e6] * traffic.n_flows, rel=0.02)


def test_all_to_all_sends_a_chunk_to_every_other_rank() -> None:
    wanted = Collective("all-to-all", 8, 1e6)
    one = 0.05 / iterations(wanted, 8, 0.5, 0.05, RATE)
    traffic = sent(wanted, seconds=one)
    assert traffic.n_flows == 8 * 6  # the other host of a rack gets nothing over the fabric
    assert payload(traffic).min() > 0.8e6 / 8 and payload(traffic).max() == 1e6 / 8


@pytest.mark.parametrize("kind", ["ring-allreduce", "all-to-all"])
@pytest.mark.parametrize("load", [0.1, 0.9])
def test_ranks_send_the_load_and_never_two_frames_at_once(kind: str, load: float) -> None:
    traffic = sent(Collective(kind, 0, 2e5), load, 0.2)  # type: ignore[arg-type]
    frame_ns = 8 * (1514 + 24) * 1e9 / RATE
    for host in range(FABRIC.n_hosts):
        mine = np.isin(traffic.flow, np.flatnonzero(traffic.src_host == host))
        if kind == "all-to-all":  # of 7 steps, one is within the rack
            assert mine.sum() * frame_ns / 0.2e9 == pytest.approx(load * 6 / 7, rel=0.1)
        assert np.diff(traffic.time_ns[mine].astype(np.int64)).min(initial=10**9) >= frame_ns - 1
    assert traffic.time_ns.max() < 0.2e9
    check_blocks(traffic.packets, 1000)


def test_the_seed_draws_the_places_of_ranks() -> None:
    wanted = Collective("ring-allreduce", 4, 1e6)
    places = {tuple(sent(wanted, seed=seed).src_host.tolist()) for seed in range(5)}
    assert len(places) > 1
    again = sent(wanted, seed=3), sent(wanted, seed=3)
    assert again[0].time_ns.tolist() == again[1].time_ns.tolist()


def test_options_are_read_or_refused_in_a_line() -> None:
    assert collective("ring-allreduce") == Collective("ring-allreduce", 0, 16e6)
    assert collective("all-to-all:mb=0.5:ranks=4") == Collective("all-to-all", 4, 5e5)
    assert collective("hadoop:skewed") is None and collective("ring.csv") is None
    for wrong in ("ring-allreduce:16", "ring-allreduce:mb=", "all-to-all:ranks=-2"):
        with pytest.raises(UserError, match="use .*:ranks=16:mb=16, and :go-back-n or"):
            collective(wrong)
    for wrong in ("ring-allreduce:ranks=1", "all-to-all:mb=0"):
        with pytest.raises(UserError, match="use 2 ranks or more, and a tensor of some bytes"):
            collective(wrong)
    with pytest.raises(UserError, match="has 9 ranks, and the fabric 8 hosts"):
        sent(Collective("ring-allreduce", 9))
    with pytest.raises(UserError, match="with 2 ranks use at most mb=191"):
        sent(Collective("ring-allreduce", 2, 1e9))


def test_two_ranks_of_one_rack_are_refused() -> None:
    wanted = Collective("ring-allreduce", 2, 1e6)
    beside = [seed for seed in range(40) if _in_one_rack(wanted, seed)]
    assert 0 < len(beside) < 40


def _in_one_rack(wanted: Collective, seed: int) -> bool:
    try:
        sent(wanted, seed=seed)
    except UserError as error:
        assert "no two of its 2 ranks are in different racks" in str(error)
        return True
    return False


def test_a_run_that_ends_within_an_iteration_says_so(caplog: pytest.LogCaptureFixture) -> None:
    demand = Demand("ring-allreduce:mb=100", 0.5, RATE, 0.05, seed=1)
    with caplog.at_level(logging.WARNING):
        traffic, account = make_traffic(demand, FABRIC)
    assert account is None and traffic.n_flows
    assert "the run of 0.05 s has 0.0" in caplog.text
    with pytest.raises(UserError, match="is a collective, and BACKEND=flow sends no packets"):
        arrivals_without_packets(replace(demand, traffic="all-to-all"), FABRIC)
