# SPDX-License-Identifier: Apache-2.0
"""The networks that a run can have: what each is capable of, and how fast it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from testbed.faults.events import REAL, Kind
from testbed.network.network import NetworkError


@dataclass(frozen=True)
class NetworkKind:
    """What a run can have on a network.

    Attributes:
        name: Its name, as BACKEND has it.
        line_rate_bps: The rate of the hosts' links in bits per second, which its switches can
            process.
        answers_per_port: ICMP messages a second that a switch answers traceroutes with, for each of
            its ports, by default. It is proportional to the line rate, so that each packet has the
            same budget, and to the ports, because 007's theorem 1 shares T_max, which is 100 for a
            switch with 4 ports, among the k / 2 ToRs of a pod: with a fixed T_max hosts could trace
            a twelfth as many connections with k=48 as with k=4, of equally many that lose packets.
        lacks: The settings that it cannot follow, each with what it needs: ``packets``.
        ignores: The settings that do not change its runs.
        injectors: What can inject faults into it.
        events: The operator events that it can carry out.
        sends_packets: Whether hosts send packets; else only their losses are drawn.
        real_time: Whether the packets are real ones, in real time and in namespaces of their own.
        packet_s: Processor seconds for one packet from host to host in real time, with the work of
            switches, hosts' agents, controller and real TCP. For the soft switch this is measured
            (K=4 and K=6: 110 and 76 us); for BMv2 it is what the defaults of K=4 were found to
            need.
        switch_s, switch_bytes: Seconds to begin and end a real switch, and its memory.
    """

    name: str
    line_rate_bps: float
    answers_per_port: float
    lacks: Mapping[str, str]
    ignores: Collection[str] = ()
    injectors: Sequence[str] = ("auto", "p4")
    events: Collection[Kind] = tuple(each for each in get_args(Kind) if each not in REAL)
    sends_packets: bool = True
    real_time: bool = False
    packet_s: float = 0.0
    switch_s: float = 0.0
    switch_bytes: float = 0.0

    def need_packets(self, option: str) -> None:
        """Check that hosts send packets, which ``option`` counts.

        Raises:
            NetworkError: They send none (one line).
        """
        if not self.sends_packets:
            raise NetworkError(f"{option} needs packets to count: leave it out, or another BACKEND")

    def need_virtual_time(self, option: str, part: str) -> None:
        """Check that time is virtual, as ``part`` of an option needs, in which hosts react to
        losses.

        Raises:
            NetworkError: It is not (one line).
        """
        if self.real_time:
            raise NetworkError(
                f"{option} reacts to losses in virtual time alone: leave out {part}, or use "
                "BACKEND=virtual"
            )


_ONLY_VIRTUAL = dict.fromkeys(("threads", "rate", "queue", "delay"), "BACKEND=virtual")
_NO_HOSTS = {"tcp": "real hosts"}
_ONLY_FLOW = {"telemetry": "BACKEND=flow"}

VIRTUAL = NetworkKind(
    "virtual", line_rate_bps=1e9, answers_per_port=25.0, lacks=_NO_HOSTS | _ONLY_FLOW
)
FLOW = NetworkKind(
    "flow",
    line_rate_bps=1e9,
    answers_per_port=25.0,
    lacks=_ONLY_VIRTUAL | _NO_HOSTS | dict.fromkeys(("events", "diagnose", "routing"), "packets"),
    ignores=("skew",),
    injectors=("auto",),
    events=(),
    sends_packets=False,
)
SOFTSWITCH = NetworkKind(
    "softswitch",
    line_rate_bps=10e6,
    answers_per_port=2.5,
    lacks=_ONLY_VIRTUAL | _ONLY_FLOW,
    injectors=("auto", "p4", "netem", "nft"),
    events=get_args(Kind),
    real_time=True,
    packet_s=100e-6,
    switch_s=0.1,
    switch_bytes=10e6,
)
BMV2 = replace(
    SOFTSWITCH,
    name="bmv2",
    line_rate_bps=2e6,
    answers_per_port=0.5,
    packet_s=750e-6,
    switch_s=0.5,
    switch_bytes=50e6,
)
NETWORKS = {each.name: each for each in (VIRTUAL, FLOW, SOFTSWITCH, BMV2)}


def need_real(name: str, lacks: str) -> NetworkKind:
    """Return the network of real packets with this name.

    Args:
        name: The setting BACKEND.
        lacks: What another network has not: ``network``.

    Raises:
        NetworkError: It has no real packets (one line).
    """
    kind = NETWORKS.get(name)
    if kind is None or not kind.real_time:
        real = " or ".join(each.name for each in NETWORKS.values() if each.real_time)
        raise NetworkError(f"BACKEND={name} has no {lacks}: use {real}")
    return kind
