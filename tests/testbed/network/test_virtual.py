# SPDX-License-Identifier: Apache-2.0
"""The event loop: conservation, order, queues, determinism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from canary_softswitch import Program, Switch
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import PROGRAM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.faults.injector import FaultInjector
from testbed.faults.specification import parse_faults
from testbed.network.schedules import listed
from testbed.network.sources import Source
from testbed.network.virtual import LinkModel, VirtualNetwork
from testbed.traffic.flows import Traffic
from testbed.traffic.generator import generate
from testbed.traffic.packets import headers

TOPOLOGY = FatTree(4)


def network(links: LinkModel = LinkModel(), faults: str = "none", noise: float = 0.0):
    program = Program.load(PROGRAM, observe=VERDICT.field)
    switches = [Switch(program, seed=i) for i in range(TOPOLOGY.n_switches)]
    for index, switch in enumerate(switches):
        install_forwarding(TOPOLOGY, index, switch, mask=1, monitor=False)
    plan = parse_faults(faults, TOPOLOGY, seed=1)
    FaultInjector(TOPOLOGY, list(switches), plan, np.full(TOPOLOGY.n_links, noise)).start()
    return VirtualNetwork(TOPOLOGY, program, switches, links)


def source(traffic: Traffic, **changes) -> Source:
    templates, lengths = headers(traffic, TOPOLOGY)
    packets = replace(listed(traffic.packets), **changes) if changes else traffic.packets
    return Source(packets, templates, lengths, traffic.src_host, traffic.dst_host)


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return generate(TOPOLOGY, "hadoop", 0.3, 0.1, seed=1)


def conserved(net: VirtualNetwork) -> bool:
    s = net.statistics
    gone = s.fault_drops + s.queue_drops + s.ttl_drops + s.other_drops
    return s.sent == s.delivered + gone + s.in_flight


def test_a_healthy_network_delivers_everything(traffic: Traffic) -> None:
    net = network()
    number = net.add_source(source(traffic))
    net.run_until(10**9)
    assert (net.delivered(number) == net.sent(number)).all()
    assert net.statistics.delivered == len(traffic.packets)
    assert net.statistics.misdelivered == net.statistics.other_drops == 0
    assert len(net.drops()) == 0


@pytest.mark.parametrize("faults", ["30pct", "devices:2", "tor0_0->agg0_0:1,core0->agg1_0:0.5"])
def test_packets_are_conserved_at_every_moment(traffic: Traffic, faults: str) -> None:
    net = network(faults=faults)
    number = net.add_source(source(traffic))
    for until in range(10**7, 2 * 10**8, 10**7):
        net.run_until(until)
        assert conserved(net)
    assert net.statistics.in_flight == 0
    drops = net.drops()
    lost = (net.sent(number) - net.delivered(number)).astype(np.int64)
    assert (np.bincount(drops["tag"], minlength=traffic.n_flows) == lost).all()
    assert np.isin(drops["link"], parse_faults(faults, TOPOLOGY, 1).links).all()


def test_losses_that_are_read_bit_by_bit_are_those_read_at_the_end(traffic: Traffic) -> None:
    often, once = network(faults="30pct"), network(faults="30pct")
    for net in (often, once):
        net.add_source(source(traffic))
    seen = [len(often.drops())]
    for until in range(10**7, 2 * 10**8, 10**7):
        often.run_until(until)
        once.run_until(until)
        assert often.fault_drops().sum() == often.statistics.fault_drops
        seen.append(len(often.drops()))
    assert seen == sorted(seen) and len(set(seen)) > 2
    assert often.drops().tobytes() == once.drops().tobytes()


def test_a_link_loses_its_share_and_no_other_link_loses(traffic: Traffic) -> None:
    net = network(faults="agg0_0->core0:0.2")
    net.add_source(source(traffic))
    net.run_until(10**9)
    link = TOPOLOGY.link("agg0_0->core0")
    drops = net.drops()
    passed = int(net.link_packets()[link])
    asked = passed + len(drops)
    assert (drops["link"] == link).all()
    assert abs(len(drops) - 0.2 * asked) < 4 * np.sqrt(asked * 0.2 * 0.8)


def test_traceroutes_expire_hop_by_hop_and_are_answered(traffic: Traffic) -> None:
    net = network()
    flow = int(np.flatnonzero(traffic.protocol == 6)[0])
    ttl = np.arange(1, 6, dtype=np.uint8)
    number = net.add_source(
        source(
            traffic,
            time_ns=np.arange(5, dtype=np.uint64) * 1000,
            flow=np.full(5, flow, np.uint32),
            size=None,
            ttl=ttl,
        )
    )
    net.run_until(10**9)
    stats = net.statistics
    assert conserved(net)
    assert stats.sent == 5 + stats.ttl_drops
    replies = net.replies()
    assert len(replies) == stats.ttl_drops
    assert (replies["host"] == traffic.src_host[flow]).all()
    assert net.delivered(number).sum() == 5 - stats.ttl_drops


def test_full_queues_drop_and_are_counted_apart(traffic: Traffic) -> None:
    slow = LinkModel(rate_bps=200_000_000, queue_bytes=20_000)
    net = network(slow, faults="tor0_0->agg0_0:0.1")
    net.add_source(source(traffic))
    net.run_until(10**11)
    stats = net.statistics
    drops = net.drops()
    assert conserved(net)
    assert stats.in_flight == 0
    assert stats.queue_drops == (drops["cause"] == 100).sum() > 0
    assert stats.fault_drops == (drops["cause"] == 1).sum() > 0


def test_a_rate_delays_packets_by_their_serialisation() -> None:
    quick = generate(TOPOLOGY, "hadoop", 0.01, 0.02, seed=2)
    first = replace(listed(quick.packets).cut(1), size=np.array([1500], np.uint16))
    one = replace(quick, packets=first)
    src, dst = (TOPOLOGY.host_tor[h[one.flow[0]]] for h in (one.src_host, one.dst_host))
    hops = 3 if src // 2 == dst // 2 else 5
    net = network(LinkModel(delay_ns=1000, rate_bps=10**9, queue_bytes=10**6))
    net.add_source(source(one))
    # host and last link carry 1500 bytes, fabric links 7 bytes of shim more
    bits = 8 * (2 * 1500 + (hops - 1) * 1507)
    arrival = int(one.time_ns[0]) + bits + (hops + 1) * 1000
    net.run_until(arrival)
    assert net.statistics.delivered == 0
    net.run_until(arrival + 1)
    assert net.statistics.delivered == 1


def test_same_seed_same_run_and_other_seed_other_losses(traffic: Traffic) -> None:
    def lost(noise_seed: int) -> np.ndarray:
        program = Program.load(PROGRAM, observe=VERDICT.field)
        switches = [Switch(program, seed=noise_seed + i) for i in range(TOPOLOGY.n_switches)]
        for index, switch in enumerate(switches):
            install_forwarding(TOPOLOGY, index, switch, mask=1, monitor=False)
        plan = parse_faults("10pct", TOPOLOGY, seed=1)
        FaultInjector(TOPOLOGY, list(switches), plan).start()
        net = VirtualNetwork(TOPOLOGY, program, switches)
        net.add_source(source(traffic))
        net.run_until(10**9)
        return net.drops()

    first, again, other = lost(1), lost(1), lost(1000)
    assert first.tobytes() == again.tobytes()
    assert len(first) != len(other) or first.tobytes() != other.tobytes()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"time_ns": np.array([2, 1], np.uint64)}, "sorted"),
        ({"flow": np.array([0], np.uint32)}, "equal lengths"),
        ({"flow": np.array([0, 2**31], np.uint32)}, "to its flows"),
        ({"size": np.array([64, 9217], np.uint16)}, "9216 bytes"),
    ],
)
def test_packets_that_do_not_fit_are_refused(traffic: Traffic, changes: dict, reason: str) -> None:
    net = network()
    two = {name: getattr(traffic, name)[:2] for name in ("time_ns", "flow", "size")}
    number = net.add_source(source(traffic, **two))
    with pytest.raises(ValueError, match=reason):
        net.feed(number, source(traffic, **two | changes))
    net.run_until(10**9)
    assert net.delivered(number).sum() == 2


def test_noise_reaches_every_link() -> None:
    busy = generate(TOPOLOGY, "hadoop", 0.6, 0.1, seed=4)
    net = network(noise=0.05)
    net.add_source(source(busy))
    net.run_until(10**9)
    assert len(np.unique(net.drops()["link"])) == TOPOLOGY.n_links


def test_a_switch_that_restarted_drops_everything(traffic: Traffic) -> None:
    net, core = network(), TOPOLOGY.switch("core0")
    number = net.add_source(source(traffic))
    net.run_until(50_000_000)
    arrived = net.link_packets()[TOPOLOGY.link_dst == core].sum()
    sent = net.link_packets()[TOPOLOGY.link_src == core].sum()
    net.restart(core)
    assert net.answers(core)
    net.run_until(10**9)
    drops = net.drops()
    assert len(drops) > 100 and conserved(net)
    assert (drops["switch"] == core).all() and (drops["link"] == -1).all()
    assert net.statistics.other_drops == len(drops)
    under_way = net.link_packets()[TOPOLOGY.link_dst == core].sum() - arrived
    assert len(drops) in range(int(under_way), int(under_way) + 10)
    assert net.link_packets()[TOPOLOGY.link_src == core].sum() == sent
    lost = (net.sent(number) - net.delivered(number)).astype(np.int64)
    assert (np.bincount(drops["tag"], minlength=traffic.n_flows) == lost).all()
