"""Loss, corruption and bursts by the kernel's netem queueing discipline."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.faults.links import InjectorError, LinkInjector, ask_in, in_new_namespace, run_in
from testbed.faults.plan import Fault


@dataclass
class NetemInjector(LinkInjector):
    """Drops, black holes and corruption of whole links.

    netem corrupts by flipping one bit anywhere in a frame; the next switch discards what then fails
    the IPv4 checksum, so fewer packets are lost than corrupted.

    ``burst`` is the mean number of packets lost in a row: 1 is independent loss, more is the
    Gilbert model, a link that is now good and now loses everything, with the same overall rate.
    """

    burst: float = 1.0

    def __post_init__(self) -> None:
        if self.burst < 1:
            raise InjectorError(f"netem: a burst of {self.burst:g} packets; it is at least 1")
        super().__post_init__()

    @staticmethod
    def available() -> str:
        """Why this kernel or machine cannot do it, "" if it can."""
        if shutil.which("tc") is None:
            return "INJECTOR=netem needs tc (apt install iproute2); use INJECTOR=p4 or nft"
        if complaint := in_new_namespace(_replace("lo", ["loss", "random", "1%"])):
            return (
                f"INJECTOR=netem needs the kernel's sch_netem ({complaint}): apt install "
                "linux-modules-extra-$(uname -r) (Ubuntu), or use INJECTOR=p4 or nft"
            )
        return ""

    def check(self, fault: Fault) -> None:
        if fault.match is not None:
            raise InjectorError(
                "INJECTOR=netem cannot match flows, only whole links; use INJECTOR=p4 or nft"
            )

    def set_link(self, link: int, faults: Sequence[Fault], noise: float) -> None:
        pid, interface = self.egress(link)
        options = netem_options(faults, noise, self.burst)
        if complaint := run_in(pid, _replace(interface, options)):
            raise InjectorError(f"tc on {interface}: {complaint}; use INJECTOR=p4 or nft")

    def count(self, link: int) -> int:
        pid, interface = self.egress(link)
        found = ask_in(pid, ["tc", "-s", "-j", "qdisc", "show", "dev", interface])
        return sum(int(qdisc.get("drops", 0)) for qdisc in found if qdisc.get("kind") == "netem")


def netem_options(faults: Sequence[Fault], noise: float, burst: float) -> list[str]:
    """Options of ``tc qdisc ... netem`` for a link; the first fault of a kind counts."""
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
    # netem's default queue of 1000 packets would drop bursts of its own accord
    return [
        *("tc", "qdisc", "replace", "dev", interface, "root", "netem", "limit", "100000"),
        *options,
    ]
