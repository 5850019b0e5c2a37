"""What the kernel's injectors share: faults at the interface where a directed link begins.

They act after the switch has sent a packet, hence after its upstream meter counted it, and only on
that direction of the link.
"""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import UserError
from testbed.fabric.addressed import AddressedFabric
from testbed.faults.plan import Fault, FaultPlan

Egress = Callable[[int], tuple[int, str]]
"""Of a directed link: a process in the namespace where it begins, and its interface there."""


class InjectorError(UserError):
    """This kernel, or this injector, cannot do what a fault asks. One line."""


@dataclass
class LinkInjector(ABC):
    """Keeps each link's state in the kernel, on the plan's schedule.

    The face of `testbed.faults.injector.FaultInjector`: of the faults that match a packet the one
    with a flow match wins, then the whole link's, then the link's ``noise``.

    Args:
        topology: The fabric.
        egress: Where links begin (`testbed.network.mininet.MininetNetwork.egress`).
        plan: The faults.
        noise: The loss rate of each link while no fault of it is active, float64[n_links].
    """

    topology: AddressedFabric
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
        """Why this kernel or machine cannot do it, "" if it can."""

    @abstractmethod
    def check(self, fault: Fault) -> None:
        """Raise InjectorError for a fault that this injector has no means for."""

    @abstractmethod
    def set_link(self, link: int, faults: Sequence[Fault], noise: float) -> None:
        """Bring a link to this state: faults by falling priority, then noise."""

    @abstractmethod
    def count(self, link: int) -> int:
        """Packets that the kernel has taken at a link that was set once."""

    def start(self) -> None:
        """Install noise, and the faults that are active at time 0.

        Raises:
            InjectorError: The kernel lacks what it takes.
        """
        reason = self.available()
        if reason:
            raise InjectorError(reason)
        self._active = self._due(0.0)
        lossy = {fault.link for fault in self._active.values()}
        if self.noise is not None:
            lossy |= set(np.flatnonzero(self.noise).tolist())
        for link in sorted(lossy):
            self._update(link)

    def times(self) -> list[float]:
        """The seconds at which a fault begins or ends, ascending."""
        return sorted({t for fault in self.plan.faults for span in fault.schedule for t in span})

    def apply(self, now: float) -> None:
        """Bring the links to the state of a time in seconds."""
        before, self._active = self._active, self._due(now)
        changed = before.keys() ^ self._active.keys()
        for link in sorted({self.plan.faults[index].link for index in changed}):
            self._update(link)

    def dropped(self) -> npt.NDArray[np.uint64]:
        """Packets that were lost here at each directed link: uint64[n_links]."""
        drops = np.zeros(self.topology.n_links, np.uint64)
        for link in self._touched:
            drops[link] = self.count(link)
        return drops

    def _due(self, now: float) -> dict[int, Fault]:
        return {
            index: fault
            for index, fault in enumerate(self.plan.faults)
            if not fault.schedule or any(a <= now < b for a, b in fault.schedule)
        }

    def _update(self, link: int) -> None:
        faults = [fault for fault in self._active.values() if fault.link == link]
        noise = 0.0 if self.noise is None else float(self.noise[link])
        self._touched.add(link)
        self.set_link(link, sorted(faults, key=lambda fault: fault.match is None), noise)


def run_in(pid: int, command: Sequence[str], text: str = "") -> str:
    """Run a command in the network namespace of a process; returns "" or its complaint."""
    return _complaint([*_inside(pid), *command], text)


def ask_in(pid: int, command: Sequence[str]) -> Any:
    """Run a command in the network namespace of a process; returns the JSON that it prints.

    Raises:
        InjectorError: It fails, or prints something else.
    """
    result = subprocess.run([*_inside(pid), *command], capture_output=True, text=True, check=False)
    try:
        return json.loads(result.stdout)
    except ValueError:
        said = " ".join(result.stderr.split()) or "no JSON"
        raise InjectorError(f"{' '.join(command)}: {said}") from None


def _inside(pid: int) -> list[str]:
    return ["nsenter", "--net", f"--target={pid}"]


def in_new_namespace(command: Sequence[str], text: str = "") -> str:
    """Run a command in a network namespace that ends with it; returns "" or its complaint."""
    return _complaint(["unshare", "--net", *command], text)


def _complaint(command: list[str], text: str) -> str:
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as e:
        return f"{e.filename}: {e.strerror}"
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    return "" if not result.returncode else (lines[0] if lines else f"status {result.returncode}")
