# SPDX-License-Identifier: Apache-2.0
"""Injects a fault plan through the P4 fault tables of the switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.control.switch import Tables
from testbed.dataplane import FAULT, INGRESS_FAULT
from testbed.dataplane import Fault as FaultTable
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary

_ANY = (0, 0)
_SPECIFIC, _WHOLE_LINK, _NOISE = 3, 2, 1  # priorities, the highest wins


@dataclass
class FaultInjector:
    """Installs the faults of a plan in the egress fault tables, on their schedule.

    A fault acts where its link begins, after the upstream meter counted the packet; that of a link
    from a host where it ends, before the ToR has done anything with the packet. ``noise`` holds the
    loss rate of each link while no fault of it is active, float64[n_links].
    """

    topology: PacketFabric
    controls: Sequence[Tables]
    plan: FaultPlan
    noise: npt.NDArray[np.float64] | None = None
    _active: dict[int, int] = field(default_factory=dict)

    def start(self) -> None:
        """Install the noise of healthy links and the faults that are active at time 0."""
        if self.noise is not None:
            for link in np.flatnonzero(self.noise).tolist():
                self._add(link, None, FAULT.lossy, [_threshold(float(self.noise[link]))], _NOISE)
        self.apply(0.0)

    def times(self) -> list[float]:
        """Return the times in seconds at which a fault begins or ends, ascending."""
        return sorted({t for fault in self.plan.faults for span in fault.schedule for t in span})

    def apply(self, now: float) -> None:
        """Install and remove faults so that the tables hold those active at ``now`` (seconds)."""
        for index, fault in enumerate(self.plan.faults):
            due = not fault.schedule or any(a <= now < b for a, b in fault.schedule)
            if due and index not in self._active:
                self._active[index] = self._install(fault)
            elif not due and index in self._active:
                self._table(fault.link).delete(self._active.pop(index))

    def stop(self) -> None:
        """Remove the active faults from the tables; noise stays."""
        for index, handle in self._active.items():
            self._table(self.plan.faults[index].link).delete(handle)
        self._active.clear()

    def dropped(self) -> npt.NDArray[np.uint64]:
        """Return zeros for each directed link, also those of hosts, uint64[n_links + 2 * n_hosts]:
        the switches count what these tables drop."""
        return np.zeros(self.topology.n_links + 2 * self.topology.n_hosts, np.uint64)

    def _place(self, link: int) -> tuple[int, int, FaultTable]:
        """Return the switch and the port of a link where its faults act, and the switch's table."""
        topology, host = self.topology, (link - self.topology.n_links) // 2
        if host < 0:
            return int(topology.link_src[link]), int(topology.link_src_port[link]), FAULT
        table = FAULT if link & 1 else INGRESS_FAULT
        return int(topology.host_tor[host]), int(topology.host_port[host]), table

    def _table(self, link: int):
        switch, _, table = self._place(link)
        return self.controls[switch].table(table.faults)

    def _install(self, fault: Fault) -> int:
        priority = _WHOLE_LINK if fault.match is None else _SPECIFIC
        table = self._place(fault.link)[2]
        if fault.kind == "blackhole" or (fault.kind == "drop" and fault.rate >= 1.0):
            return self._add(fault.link, fault.match, table.blackhole, [], priority)
        action = table.lossy if fault.kind == "drop" else table.corrupt
        return self._add(fault.link, fault.match, action, [_threshold(fault.rate)], priority)

    def _add(
        self, link: int, match: FlowMatch | None, action: str, params: list[int], priority: int
    ) -> int:
        fields = ("src_ip", "dst_ip", "protocol", "src_port", "dst_port")
        key: list[int | tuple[int, int]] = [self._place(link)[1]]
        key += [_ternary(getattr(match, field, None)) for field in fields]
        return self._table(link).add(key, action, params, priority=priority)


def _threshold(rate: float) -> int:
    """Return the threshold for a loss rate: a packet is lost if a random 32-bit number is less."""
    return min(round(rate * 2**32), 2**32 - 1)


def _ternary(field: Ternary | None) -> tuple[int, int]:
    return _ANY if field is None else (field.value, field.mask)
