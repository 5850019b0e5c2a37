"""The switches' processes under Mininet: started, waited for, programmed, and missed when they die.

Their P4Runtime servers listen on Unix sockets, their Thrift servers on loopback, each in its own
namespace (`testbed.network.mininet` says why).
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from testbed.fabric.fat_tree import FatTree
from testbed.fabric.names import command
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.two_switches import TwoSwitches
from testbed.network.namespaces import inside
from testbed.network.network import NetworkError, switch_seed
from testbed.network.nodes import Nodes
from testbed.network.packet_sockets import PacketSockets
from testbed.network.processes import ProcessError, RunState, Watched, sockets_of_networks
from testbed.network.speed import patience

if TYPE_CHECKING:
    from testbed.control.remote.switch import RemoteSwitch

Backend = Literal["bmv2", "softswitch"]

SOFT_SWITCH = "testbed.softswitch.server.process"
THRIFT_PORT = 9090  # in each switch's own namespace
QUEUE_PACKETS = 1000  # BMv2's 64 are fewer than one burst of a few hosts
RESTARTING = "it restarts"
START_S = 60  # on a machine of the usual speed


def running_switch(name: str, state: Path | None = None) -> list[str]:
    """Arguments with which p4runtime-sh reaches a switch of the network that is up, of several the
    one that was begun last.

    Raises:
        NetworkError: None is up, or it has no switch of that name.
    """
    networks = sockets_of_networks(state)
    if not networks:
        start = "start one with `sudo make net` in another terminal"
        if os.geteuid():  # whether root has one cannot be seen
            raise NetworkError(
                f"this user has no network, as networks are root's: {start}, then use "
                f"`{command('sudo', 'make', 'shell', f'SWITCH={name}')}`"
            )
        raise NetworkError(f"no network is up: {start}")
    sockets = networks[0]
    found = sorted(path.stem for path in sockets.glob("*.grpc"))
    address = sockets / f"{name}.grpc"
    if name not in found:
        raise NetworkError(f"no switch {name!r} is up: there are {', '.join(found[:6])}, ...")
    fabrics = chain([TwoSwitches()], (FatTree(k) for k in range(4, 129, 2)))
    fabric = next(each for each in fabrics if each.n_switches == len(found))
    device = fabric.switch(name) + 1
    return ["--grpc-addr", f"unix:{address}", "--device-id", str(device)]


class Switches:
    """The switch processes of a network, once `start` has been called.

    Args:
        topology: The fabric.
        backend: What the switches are.
        nodes: Their nodes.
        state: The run.
        logs: Gets each process's output and all exit codes.
        seed: Of the soft switches' dice. BMv2 takes none.
        clock: Nanoseconds of the run.
        on_death: Hears the number of a switch that died, at once.

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
    ) -> None:
        self._names = topology.switch_names
        self._backend = backend
        self._nodes = nodes
        self._sockets = state.sockets
        self._logs = logs
        self._seed = seed
        self._clock = clock
        self._on_death = on_death
        self._deaths: dict[int, str] = {}
        self._watched = Watched(state, logs, self._died)
        self.controls: list[RemoteSwitch] = []

    def start(self, program: Path, p4info: Path) -> None:
        """Start all, wait for their servers and load the program.

        Raises:
            ProcessError: One does not start.
        """
        switches = range(len(self._names))
        for switch in switches:
            self._watched.start(self._names[switch], self._command(switch))
        deadline = time.monotonic() + START_S * patience()
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda switch: self._wait_for(switch, deadline), switches))
            self.controls = list(pool.map(lambda switch: self._control(switch, p4info), switches))
            list(pool.map(lambda control: control.push_program(program), self.controls))
            if self._backend == "bmv2":
                list(
                    pool.map(lambda control: control.set_queue_depth(QUEUE_PACKETS), self.controls)
                )

    def restart(self, switch: int) -> None:
        """End a switch's process and start another; `answers` says when that is up.

        Its control is lost until it is restored.
        """
        name = self._names[switch]
        self.controls[switch].give_up(RESTARTING)
        self._p4runtime(name).unlink(missing_ok=True)
        self._watched.restart(name, self._command(switch))

    def answers(self, switch: int) -> bool:
        """Return whether a switch's two servers accept connections now."""
        try:
            for attempt in self._attempts(self._names[switch]):
                attempt().close()
        except OSError:
            return False
        return True

    def watch(self) -> None:
        """Notice from now on when one dies."""
        self._watched.watch()

    def pid(self, name: str) -> int:
        return self._watched.pid(name)

    def sockets(self) -> list[PacketSockets]:
        """Of each switch, once they have been started."""
        return [self.sockets_of(switch) for switch in range(len(self._names))]

    def sockets_of(self, switch: int) -> PacketSockets:
        """Of one switch, once it is up."""
        return PacketSockets(self.pid(self._names[switch]), self._backend == "bmv2")

    @property
    def degraded(self) -> list[str]:
        """Switches that died or cannot be reached, and how: ``"agg0_1: signal SIGKILL"``."""
        lost = {
            switch: control.lost
            for switch, control in enumerate(self.controls)
            if control.lost and not control.closed
        }
        found = sorted((lost | self._deaths).items())
        return [f"{self._names[switch]}: {how}" for switch, how in found]

    def stop(self) -> None:
        """End all. What was lost until now stays told."""
        self._watched.stop()
        for switch, control in enumerate(self.controls):
            if control.lost:
                self._deaths.setdefault(switch, control.lost)
        for control in self.controls:
            control.close()

    def _died(self, name: str, how: str) -> None:
        switch = self._names.index(name)
        self._on_death(switch)
        self._deaths[switch] = how
        if switch < len(self.controls):
            self.controls[switch].give_up(how)

    def _command(self, switch: int) -> list[str]:
        name = self._names[switch]
        if self._backend == "bmv2":
            program = ["simple_switch_grpc", "-L", "warn", "--log-console"]
        else:
            program = [sys.executable, "-P", "-m", SOFT_SWITCH]
            program += ["--seed", str(switch_seed(self._seed, switch))]
        command = ["mnexec", "-a", str(self._nodes.pid(name)), *program, "--no-p4"]
        for port, interface in self._nodes.interfaces(name).items():
            command += ["-i", f"{port}@{interface}"]
        command += ["--device-id", str(switch + 1), "--thrift-port", str(THRIFT_PORT)]
        if self._backend == "bmv2":
            command += ["--notifications-addr", f"ipc://{self._sockets / name}.events"]
        return [*command, "--", "--grpc-server-addr", f"unix:{self._p4runtime(name)}"]

    def _p4runtime(self, name: str) -> Path:
        """The Unix socket of a switch's P4Runtime server; gRPC takes it as ``unix:PATH``."""
        return self._sockets / f"{name}.grpc"

    def _wait_for(self, switch: int, deadline: float) -> None:
        """Until a switch's two servers accept connections."""
        name = self._names[switch]
        for attempt in self._attempts(name):
            while True:
                ended = self._watched.ended(name)
                if ended or time.monotonic() > deadline:
                    what = (
                        f"ended with {ended}"
                        if ended
                        else f"does not answer in {START_S * patience():.0f} s"
                    )
                    log = self._logs / f"{name}.log"
                    words = self._watched.last_words(name)
                    raise ProcessError(f"switch {name} {what}: {words or 'no message'} ({log})")
                try:
                    attempt().close()
                    break
                except OSError:
                    time.sleep(0.05)

    def _attempts(self, name: str) -> list[Callable[[], socket.socket]]:
        """Return what connects to a switch's two servers."""
        return [lambda: _connect_unix(self._p4runtime(name)), lambda: self._connect_thrift(name)]

    def _connect_thrift(self, name: str) -> socket.socket:
        with inside(self._nodes.pid(name)):
            return socket.create_connection(("127.0.0.1", THRIFT_PORT), timeout=30 * patience())

    def _control(self, switch: int, p4info: Path) -> RemoteSwitch:
        from testbed.control.remote.connection import RemoteError
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
                lambda: RegisterClient(self._connect_thrift(name)),
                clock=self._clock,
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
