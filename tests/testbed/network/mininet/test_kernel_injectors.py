# SPDX-License-Identifier: Apache-2.0
"""The kernel's injectors over two switches: the rates they really inject, and what they count.

`make test-vm` runs those of netem under a kernel that has it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from testbed.faults.kernel_injectors import KernelInjector, NetemInjector, NftInjector
from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary
from testbed.network.mininet import MininetNetwork
from testbed.network.speed import slowness
from tests.binomial import tail
from tests.testbed.network.mininet.conftest import some_backend
from tests.testbed.network.mininet.two_switches import (
    DOWNWARD,
    TWO,
    UPWARD,
    bring_up_two,
    one_flow,
    send,
)

pytestmark = pytest.mark.root

PACKETS = 20_000 if slowness() == 1 else 4000


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MininetNetwork]:
    with bring_up_two(tmp_path_factory.mktemp("two"), some_backend()) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def flows(net: MininetNetwork) -> list[int]:
    """The network's number of a flow to the right, and of one to the left."""
    return [net.add_source(one_flow(net, src)) for src in (0, 1)]


def injector(kind: type[KernelInjector], net: MininetNetwork, *faults: Fault) -> KernelInjector:
    if reason := kind.available():
        pytest.skip(reason)
    made = kind(TWO, net.egress, FaultPlan(faults))
    made.start()
    return made


@pytest.mark.real_time
@pytest.mark.parametrize("rate", [0.02, 0.1])
@pytest.mark.parametrize("kind", [NetemInjector, NftInjector])
def test_the_injected_rate_is_within_the_binomial_interval_and_in_one_direction(
    net: MininetNetwork, flows: list[int], kind: type[KernelInjector], rate: float
) -> None:
    link = injector(kind, net, Fault(UPWARD, rate))
    counted = link.dropped()
    try:
        sent, lost = send(net, flows[0], PACKETS)
        counted = link.dropped() - counted
        back = send(net, flows[1], 1000, src=1)
    finally:
        link.set_link(UPWARD, [], 0.0)
    chance = tail(lost, PACKETS, rate)
    print(f"{kind.__name__} at {rate:g}: {lost} of {sent} lost, tail {chance:.4f}")
    assert sent == PACKETS
    assert chance > 0.0005
    assert np.flatnonzero(counted).tolist() == [UPWARD] and counted[UPWARD] == lost
    assert back == (1000, 0)
    assert send(net, flows[0], 1000) == (1000, 0)  # and it is healed
    own = net.emulator_drops(link.dropped())
    assert own.link[own.link >= 0].tolist() == []  # all of it was the fault's


@pytest.mark.real_time
def test_netem_loses_in_bursts_at_the_same_rate(net: MininetNetwork, flows: list[int]) -> None:
    if reason := NetemInjector.available():
        pytest.skip(reason)
    plan = FaultPlan((Fault(DOWNWARD, 0.1),))
    link = NetemInjector(TWO, net.egress, plan, burst=4.0)
    link.start()
    try:
        sent, lost = send(net, flows[1], PACKETS, src=1)
    finally:
        link.set_link(DOWNWARD, [], 0.0)
    # The variance of a two-state chain's mean: 2 * burst - 1 times that of independent losses.
    deviation = (PACKETS * 0.1 * 0.9 * (2 * 4.0 - 1)) ** 0.5
    print(f"netem in bursts of 4 at 0.1: {lost} of {sent} lost")
    assert sent == PACKETS
    assert abs(lost - PACKETS * 0.1) < 3.3 * deviation
    assert link.dropped()[DOWNWARD] == link.dropped().sum() == lost


@pytest.mark.real_time
def test_what_netem_corrupts_the_next_switch_throws_away(
    net: MininetNetwork, flows: list[int]
) -> None:
    link = injector(NetemInjector, net, Fault(UPWARD, 0.5, "corrupt"))
    try:
        sent, lost = send(net, flows[0], PACKETS // 4)
    finally:
        link.set_link(UPWARD, [], 0.0)
    print(f"netem corrupting half: {lost} of {sent} lost")
    # One bit of a frame of 1407 bytes: a switch checks its first 41, of Ethernet, shim and IP.
    assert 0.002 * sent < lost < 0.05 * sent


@pytest.mark.real_time
@pytest.mark.parametrize("broken", [UPWARD, TWO.n_links, TWO.n_links + 3], ids=["", "up", "down"])
def test_nft_takes_only_the_flows_that_match(
    net: MininetNetwork, flows: list[int], broken: int
) -> None:
    """Between switches, and on the links from the one host and to the other."""
    match = FlowMatch(src_ip=Ternary(int(TWO.host_ip[0]), 0xFFFFFFFF), dst_port=Ternary(81, 0xFFFF))
    other = FlowMatch(src_ip=Ternary(int(TWO.host_ip[0]), 0xFFFFFFFF), dst_port=Ternary(80, 0xFFFF))
    for chosen, taken in ((match, False), (other, True)):
        link = injector(NftInjector, net, Fault(broken, 1.0, "blackhole", chosen))
        try:
            counted, own = link.dropped(), net.emulator_drops(link.dropped()).packets.sum()
            sent, lost = send(net, flows[0], 400)
            counted = link.dropped() - counted
            own = net.emulator_drops(link.dropped()).packets.sum() - own  # a busy machine's
            assert sent == 400 and own < 40
            assert counted[broken] == counted.sum() == (400 - own if taken else 0)
            assert lost == counted.sum() + own
        finally:
            link.set_link(broken, [], 0.0)
