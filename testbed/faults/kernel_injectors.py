# SPDX-License-Identifier: Apache-2.0
"""Faults in the kernel: netem or nftables at the interface where a directed link begins.

They act after the switch has sent a packet, hence after its upstream meter counted it, and only on
that direction of the link.
"""

from __future__ import annotations

import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.dataplane import SHIM_BITS
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary
from testbed.rootless import find_program, search_path, unshare

Egress = Callable[[int], tuple[int, str]]
"""Returns, for a directed link, a process in the namespace where it begins and its interface."""


Command = tuple[list[str], str]
"""A command's words and its standard input."""


class InjectorError(UserError):
    """The kernel or the injector does not support a fault. The message is one line."""


@dataclass
class KernelInjector(ABC):
    """Installs the faults of a plan in the kernel, on their schedule.

    It has the methods of `testbed.faults.injector.FaultInjector`: if several faults match a packet,
    the one with a flow match applies, then the whole link's, then the link's ``noise``.

    Args:
        topology: The fabric.
        egress: Returns where a link begins (`testbed.network.mininet.MininetNetwork.egress`).
        plan: The faults.
        noise: The loss rate of each link while no fault of it is active, float64[n_links].
    """

    others: ClassVar[str]
    """The injectors to use instead."""

    topology: PacketFabric
    egress: Egress
    plan: FaultPlan
    noise: npt.NDArray[np.float64] | None = None
    _active: dict[int, Fault] = field(default_factory=dict)
    _touched: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for fault in self.plan.faults:
            self.check(fault)

    @staticmethod
    @abstractmethod
    def available() -> str:
        """Return why this machine or kernel does not support the injector, "" if it does."""

    @abstractmethod
    def check(self, fault: Fault) -> None:
        """Raise InjectorError for a kind of fault that this injector does not support."""

    @abstractmethod
    def command(self, interface: str, faults: Sequence[Fault], noise: float) -> Command:
        """Return the command that replaces the faults and the noise of a link.

        Args:
            interface: The interface where the link begins; the command runs in its namespace.
            faults: The link's active faults, by falling priority.
            noise: Its loss rate for packets that no fault matches.
        """

    def set_link(self, link: int, faults: Sequence[Fault], noise: float) -> None:
        """Replace a link's faults, given by falling priority, and its noise (a loss rate).

        Raises:
            InjectorError: The kernel refuses it.
        """
        pid, interface = self.egress(link)
        words, text = self.command(interface, faults, noise)
        if complaint := run_in(pid, words, text):
            raise InjectorError(
                f"{words[0]} on {interface}: {complaint}; use INJECTOR={self.others}"
            )

    @abstractmethod
    def count(self, link: int) -> int:
        """Return how many packets the kernel dropped at a link that `set_link` was called for."""

    def start(self) -> None:
        """Install the noise of healthy links and the faults that are active at time 0.

        Raises:
            InjectorError: The machine or kernel does not support the injector.
        """
        reason = self.available()
        if reason:
            raise InjectorError(reason)
        for link in self._begin():
            self._update(link)

    def commands(self) -> dict[int, Command]:
        """Return what `start` runs for each lossy link, to be run elsewhere."""
        return {
            link: self.command(self.egress(link)[1], *self._state(link)) for link in self._begin()
        }

    def _begin(self) -> list[int]:
        """Activate the faults of time 0 and return the links that lose packets then, sorted."""
        self._active = self._due(0.0)
        lossy = {fault.link for fault in self._active.values()}
        if self.noise is not None:
            lossy |= set(np.flatnonzero(self.noise).tolist())
        return sorted(lossy)

    def times(self) -> list[float]:
        """Return the times in seconds at which a fault begins or ends, ascending."""
        return sorted({t for fault in self.plan.faults for span in fault.schedule for t in span})

    def apply(self, now: float) -> None:
        """Update the links whose active faults change by ``now`` (seconds)."""
        before, self._active = self._active, self._due(now)
        changed = before.keys() ^ self._active.keys()
        for link in sorted({self.plan.faults[index].link for index in changed}):
            self._update(link)

    def dropped(self) -> npt.NDArray[np.uint64]:
        """Return the packets that the kernel dropped at each directed link, also those of hosts,
        uint64[n_links + 2 * n_hosts] in the order of `testbed.fabric.host_links`."""
        drops = np.zeros(self.topology.n_links + 2 * self.topology.n_hosts, np.uint64)
        for link in self._touched:
            drops[link] = self.count(link)
        return drops

    def _due(self, now: float) -> dict[int, Fault]:
        return {
            index: fault
            for index, fault in enumerate(self.plan.faults)
            if not fault.schedule or any(a <= now < b for a, b in fault.schedule)
        }

    def _state(self, link: int) -> tuple[list[Fault], float]:
        """Return a link's active faults, by falling priority, and its noise."""
        faults = [fault for fault in self._active.values() if fault.link == link]
        of_host = link >= self.topology.n_links
        noise = 0.0 if self.noise is None or of_host else float(self.noise[link])
        return sorted(faults, key=lambda fault: fault.match is None), noise

    def _update(self, link: int) -> None:
        self._touched.add(link)
        self.set_link(link, *self._state(link))


# ---- netem ------------------------------------------------------------------------------------


@dataclass
class NetemInjector(KernelInjector):
    """Drops, black holes and corruption of whole links, by the queueing discipline netem.

    netem corrupts by flipping one bit anywhere in a frame; the next switch discards what then fails
    the IPv4 checksum, so fewer packets are lost than corrupted.

    ``burst`` is the mean number of packets lost in a row: 1 is independent loss, more is the
    Gilbert model, a link that is now good and now loses everything, with the same overall rate.
    """

    others = "p4 or nft"
    burst: float = 1.0

    def __post_init__(self) -> None:
        if self.burst < 1:
            raise InjectorError(f"netem: a burst of {self.burst:g} packets; use at least 1")
        super().__post_init__()

    @staticmethod
    def available() -> str:
        """Return why this kernel or machine cannot do it, "" if it can; uses a new namespace."""
        if find_program("tc") is None:
            return "INJECTOR=netem needs tc (apt install iproute2); use INJECTOR=p4 or nft"
        if complaint := in_new_namespace(_replace("lo", ["loss", "random", "1%"])):
            return (
                f"INJECTOR=netem needs the kernel's sch_netem ({complaint}): apt install "
                "linux-modules-extra-$(uname -r) (Ubuntu), or use INJECTOR=p4 or nft"
            )
        return ""

    def check(self, fault: Fault) -> None:
        """Raise InjectorError for a fault with a flow match, which netem does not support."""
        if fault.match is not None:
            raise InjectorError(
                "INJECTOR=netem cannot match flows, only whole links; use INJECTOR=p4 or nft"
            )

    def command(self, interface: str, faults: Sequence[Fault], noise: float) -> Command:
        """Return the command that replaces a link's netem discipline."""
        return _replace(interface, netem_options(faults, noise, self.burst)), ""

    def count(self, link: int) -> int:
        """Return how many packets netem dropped at a link."""
        pid, interface = self.egress(link)
        found = ask_in(pid, ["tc", "-s", "-j", "qdisc", "show", "dev", interface])
        return sum(int(qdisc.get("drops", 0)) for qdisc in found if qdisc.get("kind") == "netem")


def netem_options(faults: Sequence[Fault], noise: float, burst: float) -> list[str]:
    """Return the options of ``tc qdisc ... netem`` for a link; the first fault of a kind counts.

    Args:
        faults: The active faults of the link.
        noise: Its loss rate if no fault drops packets.
        burst: The mean number of packets lost in a row.
    """
    options: list[str] = []
    lost = next((fault for fault in faults if fault.kind != "corrupt"), None)
    rate = noise if lost is None else (1.0 if lost.kind == "blackhole" else lost.rate)
    if rate >= 1 or (rate and burst == 1):
        options += ["loss", "random", _percent(min(rate, 1.0))]
    elif rate:
        leave_bad = 1 / burst
        enter_bad = min(1.0, rate * leave_bad / (1 - rate))
        options += ["loss", "gemodel", _percent(enter_bad), _percent(leave_bad)]
    corrupted = next((fault for fault in faults if fault.kind == "corrupt"), None)
    if corrupted is not None:
        options += ["corrupt", _percent(corrupted.rate)]
    return options


def _percent(rate: float) -> str:
    return f"{100 * rate:.7f}".rstrip("0").rstrip(".") + "%"


def _replace(interface: str, options: list[str]) -> list[str]:
    # netem's default queue of 1000 packets would drop packets of bursts
    return [
        *("tc", "qdisc", "replace", "dev", interface, "root", "netem", "limit", "100000"),
        *options,
    ]


# ---- nftables ---------------------------------------------------------------------------------

_NFT_TABLE = "canary"
_LOSE = 'fwd to "lo"'
_STEPS = 10**9  # a rate's resolution; numgen's 32 bits have room for it
# name: bit offset in the IPv4 header (without options, ports behind it), bits
_FIELDS = {
    "protocol": (72, 8),
    "src_ip": (96, 32),
    "dst_ip": (128, 32),
    "src_port": (160, 16),
    "dst_port": (176, 16),
}


@dataclass
class NftInjector(KernelInjector):
    """Drops and black holes, of all packets or of matching flows, by nftables' netdev egress hook.

    Rates are ``numgen random``; no queueing discipline is needed. Needs Linux 5.16 and nft 1.0.1.
    Behind the Ethernet header come the shim, but for links of hosts, and then IPv4, so flow matches
    are raw offsets.

    The verdict ``drop`` would make the switch's send fail, and the switch might try again, whereas
    a lossy link gives no sign. So lost frames are forwarded to ``lo``, which discards them because
    the shim's EtherType has no receiver, and a link of a host has another MAC address than ``lo``.
    """

    others = "p4 or netem"

    @staticmethod
    def available() -> str:
        """Return why this kernel or machine cannot do it, "" if it can; uses a new namespace."""
        if find_program("nft") is None:
            return "INJECTOR=nft needs nft (apt install nftables); use INJECTOR=p4 or netem"
        if complaint := in_new_namespace(["nft", "-f", "-"], ruleset("lo", [], 0.5)):
            return (
                "INJECTOR=nft needs the netdev egress hook, numgen and fwd of Linux 5.16 "
                f"({complaint}); use INJECTOR=p4 or netem"
            )
        return ""

    def check(self, fault: Fault) -> None:
        """Raise InjectorError for corruption, which nftables does not support."""
        if fault.kind == "corrupt":
            raise InjectorError("INJECTOR=nft cannot corrupt packets; use INJECTOR=p4 or netem")

    def command(self, interface: str, faults: Sequence[Fault], noise: float) -> Command:
        """Return the command that replaces a link's nftables chain."""
        of_host = any(fault.link >= self.topology.n_links for fault in faults)
        return ["nft", "-f", "-"], ruleset(interface, faults, noise, 0 if of_host else SHIM_BITS)

    def count(self, link: int) -> int:
        """Return how many packets the link's nftables chain took away."""
        pid, interface = self.egress(link)
        found = ask_in(pid, ["nft", "-j", "list", "counters", "table", "netdev", _NFT_TABLE])
        counters = [entry["counter"] for entry in found["nftables"] if "counter" in entry]
        return sum(int(c["packets"]) for c in counters if c["name"] == _identifier(interface))


def ruleset(
    interface: str, faults: Sequence[Fault], noise: float, shim_bits: int = SHIM_BITS
) -> str:
    """Return nft commands that replace the chain of a link's interface in one transaction.

    Args:
        interface: The interface where the link begins.
        faults: Its active faults, by falling priority.
        noise: Its loss rate for packets that no fault matches.
        shim_bits: The bits between the Ethernet header and IPv4, 0 for a link of a host.
    """
    chain = _identifier(interface)
    lose = f'counter name "{chain}" {_LOSE}'  # the counter outlives the chain's rules
    lines = []
    for fault in faults:
        match = "" if fault.match is None else _match(fault.match, shim_bits)
        lines.append(match + _chance(1.0 if fault.kind == "blackhole" else fault.rate) + lose)
        lines.append(match + "accept")
    if noise:
        lines.append(_chance(noise) + lose)
    return "\n".join(
        [
            f"add table netdev {_NFT_TABLE}",
            f"add counter netdev {_NFT_TABLE} {chain}",
            f"add chain netdev {_NFT_TABLE} {chain} "
            f'{{ type filter hook egress device "{interface}" priority 0; }}',
            f"flush chain netdev {_NFT_TABLE} {chain}",
            *(f"add rule netdev {_NFT_TABLE} {chain} {line}" for line in lines),
            "",
        ]
    )


def _identifier(interface: str) -> str:
    """Return an interface's name with ``_`` for each character that nft's names may not have."""
    return "".join(c if c.isalnum() else "_" for c in interface)


def _chance(rate: float) -> str:
    return "" if rate >= 1 else f"numgen random mod {_STEPS} < {round(rate * _STEPS)} "


def _match(match: FlowMatch, shim_bits: int) -> str:
    """Return the condition that IPv4 follows, as the last 16 bits before it say, and matches."""
    terms = [f"@nh,{shim_bits - 16},16 0x0800 " if shim_bits else "@ll,96,16 0x0800 "]
    for name, (offset, bits) in _FIELDS.items():
        ternary: Ternary | None = getattr(match, name)
        if ternary is not None and ternary.mask:
            whole = ternary.mask == (1 << bits) - 1
            mask = "" if whole else f"& {ternary.mask:#x} "
            terms.append(f"@nh,{shim_bits + offset},{bits} {mask}== {ternary.value:#x} ")
    return "".join(terms)


# ---- commands in a network namespace ------------------------------------------------------------


def run_in(pid: int, command: Sequence[str], text: str = "") -> str:
    """Run a command in the network namespace of the process with id ``pid``.

    ``text`` is its standard input. Returns "" or the command's error message.
    """
    return _complaint([*_inside(pid), *command], text)


def ask_in(pid: int, command: Sequence[str]) -> Any:
    """Run a command in the network namespace of the process with id ``pid``; return its JSON.

    Raises:
        InjectorError: It fails, or prints something else.
    """
    result = _run([*_inside(pid), *command])
    try:
        return json.loads(result.stdout)
    except ValueError:
        reason = " ".join(result.stderr.split()) or "no JSON"
        raise InjectorError(f"{' '.join(command)}: {reason}") from None


def _run(command: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command with ``text`` as its standard input, and return its result."""
    environment = {**os.environ, "PATH": search_path()}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, env=environment, check=False
    )


def _inside(pid: int) -> list[str]:
    return ["nsenter", "--net", f"--target={pid}"]


def in_new_namespace(command: Sequence[str], text: str = "") -> str:
    """Run a command in a new, temporary network namespace; return "" or its error message."""
    return _complaint([*unshare(), *command], text)


def _complaint(command: list[str], text: str) -> str:
    try:
        result = _run(command, text)
    except OSError as e:
        return f"{e.filename}: {e.strerror}"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return "" if not result.returncode else (lines[0] if lines else f"status {result.returncode}")
