"""Loss by nftables: the netdev egress hook and ``numgen random``; no queueing discipline needed.

Behind the Ethernet header come the shim and then IPv4, so flow matches are raw offsets. Needs Linux
5.16 and nft 1.0.1 for the egress hook.

A verdict of ``drop`` would come back to the switch as an error of its send, and a switch may try
again; a link that loses a frame tells nobody. So lost frames are forwarded to ``lo``, where nothing
takes them: the shim's EtherType has no receiver.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.dataplane import SHIM_BITS
from testbed.faults.links import InjectorError, LinkInjector, ask_in, in_new_namespace, run_in
from testbed.faults.plan import Fault, FlowMatch, Ternary

_TABLE = "canary"
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
class NftInjector(LinkInjector):
    """Drops and black holes, of all packets or of matching flows."""

    @staticmethod
    def available() -> str:
        """Why this kernel or machine cannot do it, "" if it can."""
        if shutil.which("nft") is None:
            return "INJECTOR=nft needs nft (apt install nftables); use INJECTOR=p4 or netem"
        if complaint := in_new_namespace(["nft", "-f", "-"], ruleset("lo", [], 0.5)):
            return (
                "INJECTOR=nft needs the netdev egress hook, numgen and fwd of Linux 5.16 "
                f"({complaint}); use INJECTOR=p4 or netem"
            )
        return ""

    def check(self, fault: Fault) -> None:
        if fault.kind == "corrupt":
            raise InjectorError("INJECTOR=nft cannot corrupt packets; use INJECTOR=p4 or netem")

    def set_link(self, link: int, faults: Sequence[Fault], noise: float) -> None:
        pid, interface = self.egress(link)
        if complaint := run_in(pid, ["nft", "-f", "-"], ruleset(interface, faults, noise)):
            raise InjectorError(f"nft on {interface}: {complaint}; use INJECTOR=p4 or netem")

    def count(self, link: int) -> int:
        pid, interface = self.egress(link)
        found = ask_in(pid, ["nft", "-j", "list", "counters", "table", "netdev", _TABLE])
        counters = [entry["counter"] for entry in found["nftables"] if "counter" in entry]
        return sum(int(c["packets"]) for c in counters if c["name"] == _identifier(interface))


def ruleset(interface: str, faults: Sequence[Fault], noise: float) -> str:
    """Commands that replace a link's chain in one transaction."""
    chain = _identifier(interface)
    lose = f'counter name "{chain}" {_LOSE}'  # the counter outlives the chain's rules
    lines = []
    for fault in faults:
        match = "" if fault.match is None else _match(fault.match)
        lines.append(match + _chance(1.0 if fault.kind == "blackhole" else fault.rate) + lose)
        lines.append(match + "accept")
    if noise:
        lines.append(_chance(noise) + lose)
    return "\n".join(
        [
            f"add table netdev {_TABLE}",
            f"add counter netdev {_TABLE} {chain}",
            f"add chain netdev {_TABLE} {chain} "
            f'{{ type filter hook egress device "{interface}" priority 0; }}',
            f"flush chain netdev {_TABLE} {chain}",
            *(f"add rule netdev {_TABLE} {chain} {line}" for line in lines),
            "",
        ]
    )


def _identifier(interface: str) -> str:
    """nft's names cannot hold every character of an interface's."""
    return "".join(c if c.isalnum() else "_" for c in interface)


def _chance(rate: float) -> str:
    return "" if rate >= 1 else f"numgen random mod {_STEPS} < {round(rate * _STEPS)} "


def _match(match: FlowMatch) -> str:
    terms = [f"@nh,{SHIM_BITS - 16},16 0x0800 "]  # the shim's last field: IPv4 follows
    for name, (offset, bits) in _FIELDS.items():
        ternary: Ternary | None = getattr(match, name)
        if ternary is not None and ternary.mask:
            whole = ternary.mask == (1 << bits) - 1
            mask = "" if whole else f"& {ternary.mask:#x} "
            terms.append(f"@nh,{SHIM_BITS + offset},{bits} {mask}== {ternary.value:#x} ")
    return "".join(terms)
