# SPDX-License-Identifier: Apache-2.0
"""Starts, programs and watches the switch processes of a Mininet network.

A BMv2 switch is a process; all soft switches are one (`canary_softswitch.process.many`). P4Runtime
servers listen on Unix sockets, Thrift servers on loopback, each in its switch's own namespace
(`testbed.network.mininet` says why).
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from testbed.control.remote.thrift import PORT as THRIFT_PORT
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.namespaces import inside
from testbed.network.network import NetworkError, switch_seed
from testbed.network.nodes import Nodes
from testbed.network.packet_sockets import PacketSockets
from testbed.network.processes import ProcessError, RunState, Watched, running_networks
from testbed.network.speed import patience

if TYPE_CHECKING:
    from testbed.control.remote.switch import RemoteSwitch

Backend = Literal["bmv2", "softswitch"]

BMV2 = ["simple_switch_grpc", "-L", "warn", "--log-console"]
SOFT_SWITCHES = "canary_softswitch.process.many"
_ORDER = "order"  # the file with the switches' names, in the order of their device IDs
TOGETHER = "switches"  # the process of all soft switches
QUEUE_PACKETS = 1000  # BMv2's 64 are fewer than one burst of a few hosts
RESTARTING = "it restarts"
STOPPED = "it was stopped"
FOREIGN_ID = 1  # the lowest election ID: a controller with a lower one than before is no primary
START_S = 60  # on a machine of the usual speed


@cache
def _tells_events() -> bool:
    """Return True if this BMv2 was built with nanomsg: each switch then needs an address of its own
    for events."""
    command = [BMV2[0], "--help"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return "--notifications-addr" in printed


@dataclass(frozen=True)
class SwitchAddress:
    """How a client reaches a switch of the network that is up.

    Attributes:
        address: The address of its P4Runtime server, as gRPC takes it.
        device: Its device ID.
        network: A description of the network that it belongs to.
    """

    address: str
    device: int
    network: str


def running_switch(name: str, state: Path | None = None) -> SwitchAddress:
    """Return how to reach a switch of the running network; of several, the one started last.

    Raises:
        NetworkError: No network is up, or it has no switch of that name.
    """
    networks = running_networks(state)
    if not networks:
        raise NetworkError(
            "this user has no running network: start one with `make net` in another terminal"
        )
    network = networks[0]
    found = sorted(path.stem for path in network.sockets.glob("*.grpc"))
    address = network.sockets / f"{name}.grpc"
    if name not in found:
        raise NetworkError(f"no switch {name!r} is running: there are {', '.join(found[:6])}, ...")
    switches = (network.sockets / _ORDER).read_text().split()
    began = time.strftime("%H:%M:%S", time.localtime(network.begun_s))
    which = f"the network that process {network.runner} began at {began}"
    if len(networks) > 1:
        which += f", the latest of {len(networks)} that run"
    return SwitchAddress(f"unix:{address}", switches.index(name) + 1, which)


def arguments(device: int, interfaces: Mapping[int, str], p4runtime: Path) -> list[str]:
    """Return the command-line arguments that BMv2 and the soft switch have in common.

    Args:
        device: The device ID.
        interfaces: The names of the switch's interfaces by port number.
        p4runtime: The Unix socket of its P4Runtime server.
    """
    ports = [word for port, name in interfaces.items() for word in ("-i", f"{port}@{name}")]
    servers = ["--thrift-port", str(THRIFT_PORT), "--", "--grpc-server-addr", f"unix:{p4runtime}"]
    return ["--no-p4", *ports, "--device-id", str(device), *servers]


class Switches:
    """The switch processes of a network, once `start` has been called.

    Args:
        topology: The fabric.
        backend: The kind of switches.
        nodes: The Mininet nodes.
        state: The state file of the run.
        logs: The folder for each process's output and all exit codes.
        seed: Seeds the random numbers of soft switches; BMv2 takes no seed.
        clock: Returns the time of the run in nanoseconds.
        on_death: Called at once with the number of a switch that died.
        foreign: Whether the program is a user's: it is loaded, and then left to controllers of the
            user's, which may have any election ID.

    Attributes:
        controls: One control for each switch, in the topology's order.
    """

    def __init__(
        self,
        topology: PacketFabric,
        backend: Backend,
        nodes: Nodes,
        state: RunState,
        logs: Path,
        seed: int,
        clock: Callable[[], int],
        on_death: Callable[[int], None],
        *,
        foreign: bool = False,
    ) -> None:
        self._names = topology.switch_names
        self._backend = backend
        self._nodes = nodes
        self._sockets = state.sockets
        self._logs = logs
        self._seed = seed
        self._clock = clock
        self._on_death = on_death
        self._foreign = foreign
        self._deaths: dict[int, str] = {}
        self._watched = Watched(state, logs, self._died)
        self._orders: IO[bytes] | None = None  # to the process of all soft switches
        self.controls: list[RemoteSwitch] = []

    def start(self, program: Path, p4info: Path) -> None:
        """Start all switches, wait for their servers and load the program.

        Raises:
            ProcessError: A switch does not start.
        """
        switches = range(len(self._names))
        (self._sockets / _ORDER).write_text("\n".join(self._names))
        if self._backend == "softswitch":
            command = [sys.executable, "-P", "-m", SOFT_SWITCHES]
            self._orders = self._watched.start(TOGETHER, command, orders=True).stdin
        for switch in switches:
            self._start(switch)
        deadline = time.monotonic() + START_S * patience()
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda switch: self._wait_for(switch, deadline), switches))
            self.controls = list(pool.map(lambda switch: self._control(switch, p4info), switches))
            list(pool.map(lambda control: self._load(control, program), self.controls))

    def _load(self, control: RemoteSwitch, program: Path) -> None:
        """Load a program into a switch; BMv2 gets longer queues."""
        control.push_program(program)
        if self._backend == "bmv2":
            control.set_queue_depth(QUEUE_PACKETS)
        if self._foreign:
            control.close()

    def load_again(self, switch: int, program: Path, p4info: Path) -> None:
        """Load a program of a user's into a switch that has restarted."""
        self.controls[switch] = self._control(switch, p4info)
        self._load(self.controls[switch], program)

    def restart(self, switch: int) -> None:
        """End a switch and start another in its place; `answers` tells when it is up.

        The switch's control is lost until `RemoteSwitch.restore`.
        """
        self.end(switch, RESTARTING)
        self._start(switch)

    def end(self, switch: int, reason: str) -> None:
        """End a switch; its control is lost for this reason."""
        name = self._names[switch]
        self.controls[switch].give_up(reason)
        self._p4runtime(name).unlink(missing_ok=True)
        if self._backend == "bmv2":
            self._watched.end(name)
        else:
            self._order({"end": name})

    def begin(self, switch: int) -> None:
        """Start a switch that was ended; `answers` tells when it is up."""
        self._start(switch)

    def answers(self, switch: int) -> bool:
        """Return whether a switch's two servers accept connections now."""
        try:
            for attempt in self._attempts(self._names[switch]):
                attempt().close()
        except OSError:
            return False
        return True

    def watch(self) -> None:
        """Start to watch the processes, so that the death of a switch is noticed at once."""
        self._watched.watch()

    def pid(self, name: str) -> int:
        """Return the id of the process that a switch runs in; all soft switches share one."""
        return self._watched.pid(self._process(name))

    def sockets(self) -> list[PacketSockets]:
        """Return the packet sockets of each switch, which must be up."""
        return [self.sockets_of(switch) for switch in range(len(self._names))]

    def sockets_of(self, switch: int) -> PacketSockets:
        """Return the packet sockets of a switch, which must be up."""
        name = self._names[switch]
        return PacketSockets(self.pid(name), self._nodes.pid(name), self._backend == "bmv2")

    @property
    def degraded(self) -> list[str]:
        """Return a line for each reason for which switches died or cannot be reached.

        For example ``"agg0_1: died at 12:00:00 (signal SIGKILL)"``, ``"all switches: died ..."``.
        """
        lost = {
            switch: control.lost
            for switch, control in enumerate(self.controls)
            if control.lost not in ("", STOPPED) and not control.closed
        }
        by_fate: dict[str, list[str]] = {}
        for switch, how in sorted((lost | self._deaths).items()):
            by_fate.setdefault(how, []).append(self._names[switch])
        every = len(self._names)
        return [
            f"{'all switches' if len(names) == every else ', '.join(names)}: {how}"
            for how, names in by_fate.items()
        ]

    def stop(self) -> None:
        """End all switches; `degraded` keeps the switches lost until now."""
        self._watched.stop()
        for switch, control in enumerate(self.controls):
            if control.lost not in ("", STOPPED):
                self._deaths.setdefault(switch, control.lost)
        for control in self.controls:
            control.close()

    def _died(self, name: str, how: str) -> None:
        switches = range(len(self._names)) if name == TOGETHER else [self._names.index(name)]
        how = f"died at {time.strftime('%H:%M:%S')} ({how})"
        for switch in switches:
            self._on_death(switch)
            self._deaths[switch] = how
            if switch < len(self.controls):
                self.controls[switch].give_up(how)

    def _process(self, name: str) -> str:
        """Return the name of a switch's process in `Watched`."""
        return name if self._backend == "bmv2" else TOGETHER

    def _start(self, switch: int) -> None:
        """Start a switch without waiting until it is up."""
        name = self._names[switch]
        if self._backend == "bmv2":
            self._watched.start(name, self._bmv2(switch))
            return
        seed = ["--seed", str(switch_seed(self._seed, switch))]
        self._order(
            {
                "start": name,
                "namespace": self._nodes.pid(name),
                "log": str((self._logs / f"{name}.log").absolute()),
                "arguments": [*seed, *self._arguments(switch)],
            }
        )

    def _order(self, order: dict[str, Any]) -> None:
        """Send an order to the process of all soft switches; ignore that it died, see `_died`."""
        assert self._orders is not None
        with suppress(BrokenPipeError):
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()

    def _bmv2(self, switch: int) -> list[str]:
        """Return the command line of a BMv2 switch, which runs in the node's namespace."""
        name = self._names[switch]
        address = f"ipc://{self._sockets / name}.events"
        events = ["--notifications-addr", address] if _tells_events() else []
        return [
            "mnexec",
            "-a",
            str(self._nodes.pid(name)),
            *BMV2,
            *events,
            *self._arguments(switch),
        ]

    def _arguments(self, switch: int) -> list[str]:
        """Return the command-line arguments that BMv2 and the soft switch have in common."""
        name = self._names[switch]
        return arguments(switch + 1, self._nodes.interfaces(name), self._p4runtime(name))

    def _p4runtime(self, name: str) -> Path:
        """Return the Unix socket of a switch's P4Runtime server; for gRPC it is ``unix:PATH``."""
        return self._sockets / f"{name}.grpc"

    def _wait_for(self, switch: int, deadline: float) -> None:
        """Wait until a switch's two servers accept connections, or raise ProcessError."""
        name = self._names[switch]
        process = self._process(name)
        for attempt in self._attempts(name):
            while True:
                ended = self._watched.ended(process)
                if ended or time.monotonic() > deadline:
                    what = (
                        f"ended with {ended}"
                        if ended
                        else f"does not answer in {START_S * patience():.0f} s"
                    )
                    log = self._logs / f"{name}.log"
                    words = self._watched.last_words(name) or self._watched.last_words(process)
                    raise ProcessError(f"switch {name} {what}: {words or 'no message'} ({log})")
                try:
                    attempt().close()
                    break
                except OSError:
                    time.sleep(0.05)

    def _attempts(self, name: str) -> list[Callable[[], socket.socket]]:
        """Return functions that connect to a switch's P4Runtime and Thrift servers."""
        return [lambda: _connect_unix(self._p4runtime(name)), lambda: self._connect_thrift(name)]

    def _connect_thrift(self, name: str) -> socket.socket:
        with inside(self._nodes.pid(name)):
            return socket.create_connection(("127.0.0.1", THRIFT_PORT), timeout=30 * patience())

    def _control(self, switch: int, p4info: Path) -> RemoteSwitch:
        from testbed.control.remote.connection import ELECTION_ID, RemoteError
        from testbed.control.remote.switch import RemoteSwitch
        from testbed.control.remote.thrift import RegisterClient

        name = self._names[switch]
        address = f"unix:{self._p4runtime(name)}"
        try:
            return RemoteSwitch(
                name,
                address,
                switch + 1,
                p4info,
                lambda: RegisterClient(self._connect_thrift(name), self._backend != "bmv2"),
                clock=self._clock,
                election_id=FOREIGN_ID if self._foreign else ELECTION_ID,
                patience=patience(),
                bare=self._foreign,
            )
        except RemoteError as e:
            raise ProcessError(str(e)) from None


def _connect_unix(path: Path) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.connect(str(path))
    except OSError:
        s.close()
        raise
    return s
