# SPDX-License-Identifier: Apache-2.0
"""What the kernel's injectors are told; no network needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.faults.kernel_injectors import (
    Command,
    InjectorError,
    KernelInjector,
    NetemInjector,
    NftInjector,
    netem_options,
    ruleset,
)
from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary

TOPOLOGY = FatTree(4)
LOSE = 'counter name "tor0_0_eth3" fwd to "lo"'
SOME = FlowMatch(src_ip=Ternary(0x0A000002, 0xFFFFFFFF), dst_port=Ternary(1, 1))


@dataclass
class Recorder(KernelInjector):
    calls: list[tuple[int, list[float], float]] = field(default_factory=list)

    @staticmethod
    def available() -> str:
        return ""

    def check(self, fault: Fault) -> None:
        """Everything goes."""

    def set_link(self, link: int, faults: Sequence[Fault], noise: float) -> None:
        self.calls.append((link, [fault.rate for fault in faults], noise))

    def command(self, interface: str, faults: Sequence[Fault], noise: float) -> Command:
        raise AssertionError("nothing is run here")

    def count(self, link: int) -> int:
        return 10 + link


def nowhere(link: int) -> tuple[int, str]:
    raise AssertionError("no link is touched here")


def test_links_follow_the_schedule_and_flow_matches_come_first() -> None:
    plan = FaultPlan(
        (Fault(3, 0.5), Fault(3, 0.1, match=SOME, schedule=((1.0, 2.0),)), Fault(7, 0.2))
    )
    recorder = Recorder(TOPOLOGY, nowhere, plan)
    recorder.start()
    assert recorder.calls == [(3, [0.5], 0.0), (7, [0.2], 0.0)]
    drops = recorder.dropped()
    assert (np.flatnonzero(drops).tolist(), drops[7]) == ([3, 7], 17)
    recorder.calls.clear()
    for now in recorder.times():
        recorder.apply(now)
    assert recorder.calls == [(3, [0.1, 0.5], 0.0), (3, [0.5], 0.0)]


def test_noise_is_on_every_link() -> None:
    noise = np.linspace(0.001, 0.002, TOPOLOGY.n_links)
    recorder = Recorder(TOPOLOGY, nowhere, FaultPlan((Fault(3, 0.5),)), noise)
    recorder.start()
    assert len(recorder.calls) == TOPOLOGY.n_links
    assert recorder.calls[3] == (3, [0.5], noise[3])
    assert recorder.calls[4] == (4, [], noise[4])


def test_nft_rules_keep_the_order_of_priority() -> None:
    lines = ruleset("tor0_0-eth3", [Fault(0, 0.1, match=SOME), Fault(0, 0.25)], 0.5).splitlines()
    rules = [line.split("tor0_0_eth3 ", 1)[1] for line in lines if line.startswith("add rule")]
    match = "@nh,40,16 0x0800 @nh,152,32 == 0xa000002 @nh,232,16 & 0x1 == 0x1 "
    assert rules == [
        match + "numgen random mod 1000000000 < 100000000 " + LOSE,
        match + "accept",
        "numgen random mod 1000000000 < 250000000 " + LOSE,
        "accept",
        "numgen random mod 1000000000 < 500000000 " + LOSE,
    ]


def test_nft_rules_of_a_host_s_link_find_ipv4_without_a_shim() -> None:
    fault = Fault(TOPOLOGY.n_links, 0.1, match=SOME)
    injector = NftInjector(TOPOLOGY, nowhere, FaultPlan((fault,)))
    _, text = injector.command("h0_0_0-eth0", [fault], 0.0)
    assert "@ll,96,16 0x0800 @nh,96,32 == 0xa000002 @nh,176,16 & 0x1 == 0x1 numgen" in text


@pytest.mark.parametrize(
    ("faults", "noise", "burst", "options"),
    [
        ([Fault(0, 0.05)], 0.0, 1.0, ["loss", "random", "5%"]),
        ([Fault(0, 1.0, "blackhole")], 0.1, 4.0, ["loss", "random", "100%"]),
        ([], 0.001, 1.0, ["loss", "random", "0.1%"]),
        ([], 0.0, 1.0, []),
        ([Fault(0, 0.2)], 0.0, 4.0, ["loss", "gemodel", "6.25%", "25%"]),
        ([Fault(0, 0.02, "corrupt")], 0.0, 1.0, ["corrupt", "2%"]),
    ],
)
def test_netem_options(faults: list[Fault], noise: float, burst: float, options: list[str]) -> None:
    assert netem_options(faults, noise, burst) == options


def test_what_an_injector_cannot_do_is_one_line_that_names_others() -> None:
    with pytest.raises(InjectorError, match="nft cannot corrupt.*use INJECTOR=p4 or netem"):
        NftInjector(TOPOLOGY, nowhere, FaultPlan((Fault(0, 0.1, "corrupt"),)))
    with pytest.raises(InjectorError, match="netem cannot match flows.*use INJECTOR=p4 or nft"):
        NetemInjector(TOPOLOGY, nowhere, FaultPlan((Fault(0, 0.1, match=SOME),)))
    with pytest.raises(InjectorError, match="burst"):
        NetemInjector(TOPOLOGY, nowhere, FaultPlan(), burst=0.5)
    assert issubclass(InjectorError, ValueError)


@pytest.mark.root
@pytest.mark.parametrize("kind", [NetemInjector, NftInjector])
def test_a_missing_kernel_feature_is_said_before_anything_is_changed(kind: type) -> None:
    injector = kind(TOPOLOGY, nowhere, FaultPlan((Fault(0, 0.1),)))
    reason = injector.available()
    if not reason:
        pytest.skip("this kernel has it")
    with pytest.raises(InjectorError, match="use INJECTOR=p4 or") as caught:
        injector.start()
    assert "\n" not in str(caught.value)
