"""The fat-tree under Mininet, in real time: hosts with kernels of their own, a process a switch.

Every host and every switch has a network namespace of its own. Switches too, because BMv2's Thrift
server listens on all addresses and cannot be told otherwise: in a namespace that holds only ``lo``
and ports without addresses, that is loopback. Their P4Runtime servers listen on Unix sockets. So
the machine's own namespace gets no interface and no listener, and everything ends with the
processes (`testbed.network.processes`).

`MininetNetwork` has the face of `testbed.network.virtual.VirtualNetwork`; times are nanoseconds
since `MininetNetwork.start`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from testbed.dataplane import FAULT
from testbed.fabric.fat_tree import FatTree
from testbed.network.hosts import HostAgents
from testbed.network.namespaces import (
    NamespaceError,
    inside,
    ip_batch,
    no_ipv6,
    no_offloads,
    no_tail_loss_probes,
    transmitted,
)
from testbed.network.network import DROP, Statistics
from testbed.network.processes import TOKEN, ProcessError, RunState, Watched, clean
from testbed.network.sources import Source

if TYPE_CHECKING:
    from testbed.control.remote.switch import RemoteSwitch

__all__ = [
    "STATE",
    "Backend",
    "MininetNetwork",
    "NetworkError",
    "clean",
    "missing",
    "not_installed",
    "running_switch",
]

Backend = Literal["bmv2", "softswitch"]

STATE = Path("runs/.mininet-state.json")

THRIFT_PORT = 9090  # in each switch's own namespace
QUEUE_PACKETS = 1000  # BMv2's 64 are fewer than one burst of a few hosts
HOST_MTU = 1500
FABRIC_MTU = 1600  # with room for the shim besides what hosts may send
START_S = 60
RTO_MIN = "1s"  # as RFC 6298 has it: a busy software switch holds packets longer than Linux's 0.2 s


class NetworkError(RuntimeError):
    """The network cannot be brought up. One line that says what to do."""


def missing(backend: Backend | None = None) -> str:
    """Why no network can be brought up here, with this backend or at all; "" if one can."""
    if os.geteuid():
        return "a network of namespaces needs root: use sudo"
    return not_installed(backend)


def not_installed(backend: Backend | None = None) -> str:
    """What `missing` finds besides root."""
    for command, package in (("mnexec", "mininet"), ("ip", "iproute2")):
        if shutil.which(command) is None:
            return f"{command} is not on the PATH: apt install {package}"
    for module, package in (("mininet", "mininet"), ("p4runtime_sh", "p4runtime-shell")):
        if importlib.util.find_spec(module) is None:
            return f"Python's {module} is not installed: pip install {package}"
    if backend == "bmv2" and shutil.which("simple_switch_grpc") is None:
        return "simple_switch_grpc is not on the PATH: install BMv2, or use BACKEND=softswitch"
    if backend == "softswitch" and importlib.util.find_spec(_SOFT_SWITCH) is None:
        return "the soft switch has no process of its own here"
    return ""


_SOFT_SWITCH = "testbed.softswitch.server.process"


def running_switch(name: str, state: Path = STATE) -> list[str]:
    """Arguments with which p4runtime-sh reaches a switch of the network that is up.

    Raises:
        NetworkError: None is up, or it has no switch of that name.
    """
    try:
        sockets = Path(json.loads(state.read_text())["sockets"])
    except (OSError, ValueError, KeyError):
        raise NetworkError("no network is up: start one with `sudo make net`") from None
    found = sorted(path.stem for path in sockets.glob("*.grpc"))
    address = sockets / f"{name}.grpc"
    if name not in found:
        raise NetworkError(f"no switch {name!r} is up: there are {', '.join(found[:6])}, ...")
    k = next(k for k in range(4, 129, 2) if FatTree(k).n_switches == len(found))
    device = FatTree(k).switch(name) + 1
    return ["--grpc-addr", f"unix:{address}", "--device-id", str(device)]


class MininetNetwork:
    """A running fat-tree. Its construction brings it up; `start` begins the run's time.

    Args:
        topology: The fat-tree.
        backend: What its switches are.
        program: The program as BMv2's JSON.
        p4info: Its P4Info, as text.
        logs: Gets each process's output and all exit codes.
        seed: Of the soft switches' dice. BMv2 takes none.
        state: Where it is written down what `clean` has to remove.

    Attributes:
        controls: One control for each switch, in the topology's order.

    Raises:
        NetworkError: Something is missing, or does not start.
    """

    def __init__(
        self,
        topology: FatTree,
        backend: Backend,
        program: Path,
        p4info: Path,
        logs: Path,
        seed: int = 1,
        state: Path = STATE,
    ) -> None:
        reason = missing(backend)
        if reason:
            raise NetworkError(reason)
        self.topology = topology
        self.backend: Backend = backend
        self.logs = logs
        self._seed = seed
        self._names = [*topology.switch_names, *topology.host_names]
        self._nodes: dict[str, Any] = {}
        self._agents: HostAgents | None = None
        self.controls: list[RemoteSwitch] = []
        self._deaths: dict[int, str] = {}
        self._before_stop: list[Callable[[], None]] = []
        self._spawning = threading.Lock()
        self._stopped = False
        try:
            self._state = RunState(state)
        except ProcessError as e:
            raise NetworkError(str(e)) from None
        self._watched = Watched(self._state, logs, self._died)
        try:
            self._bring_up(program, p4info)
        except (ProcessError, NamespaceError, OSError) as e:
            self.stop()
            raise NetworkError(str(e)) from None
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> MininetNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- bringing up -------------------------------------------------------------------------

    def _bring_up(self, program: Path, p4info: Path) -> None:
        topology = self.topology
        with _token(self._state.token):
            self._make_nodes()
        self._make_links()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._configure, range(len(self._names))))
        for switch, name in enumerate(topology.switch_names):
            self._watched.start(name, self._command(switch))
        deadline = time.monotonic() + START_S
        switches = range(topology.n_switches)
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda switch: self._wait_for(switch, deadline), switches))
            self.controls = list(pool.map(lambda switch: self._control(switch, p4info), switches))
            list(pool.map(lambda control: control.push_program(program), self.controls))
            if self.backend == "bmv2":
                list(
                    pool.map(lambda control: control.set_queue_depth(QUEUE_PACKETS), self.controls)
                )
        first_host = topology.n_switches
        self._agents = HostAgents(
            [(self._pid(name), f"{name}-eth0") for name in self._names[first_host:]]
        )
        self._watched.watch()

    def _make_nodes(self) -> None:
        from mininet.net import Mininet
        from mininet.node import Node

        # Mininet would raise limits of the whole machine; a network of this size does not need it
        Mininet.inited = True
        self._net = Mininet(topo=None, build=False)
        with ThreadPoolExecutor(8) as pool:
            nodes = pool.map(lambda name: Node(name, inNamespace=True), self._names)
            self._nodes = dict(zip(self._names, nodes, strict=True))
        self._net.hosts = [self._nodes[name] for name in self.topology.host_names]
        self._net.switches = [self._nodes[name] for name in self.topology.switch_names]
        self._net.nameToNode.update(self._nodes)

    def _make_links(self) -> None:
        """All cables at once, each end made inside its namespace."""
        topology = self.topology
        names = topology.switch_names
        ends: list[tuple[tuple[str, int, str], tuple[str, int, str], int]] = []
        for link in range(0, topology.n_links, 2):
            a, b = int(topology.link_src[link]), int(topology.link_dst[link])
            ports = int(topology.link_src_port[link]), int(topology.link_dst_port[link])
            ends.append(((names[a], ports[0], ""), (names[b], ports[1], ""), FABRIC_MTU))
        for host, name in enumerate(topology.host_names):
            tor = names[int(topology.host_tor[host])]
            mac = f" address {_mac(int(topology.host_mac[host]))}"
            ends.append(((tor, int(topology.host_port[host]), ""), (name, 0, mac), HOST_MTU))
        commands = []
        for (a, a_port, a_mac), (b, b_port, b_mac), mtu in ends:
            commands.append(
                f"link add {a}-eth{a_port} mtu {mtu}{a_mac} netns {self._pid(a)} type veth "
                f"peer name {b}-eth{b_port} mtu {mtu}{b_mac} netns {self._pid(b)}"
            )
            self._tell_mininet(a, a_port, b, b_port)
        ip_batch(commands)

    def _tell_mininet(self, a: str, a_port: int, b: str, b_port: int) -> None:
        """So that its prompt knows interfaces, links and addresses."""
        from mininet.link import Intf, Link

        class Made(Intf):
            def config(self, *_: Any, **__: Any) -> dict[str, Any]:
                """It is configured already."""
                return {}

        here, there = (
            Made(f"{node}-eth{port}", self._nodes[node], port, moveIntfFn=lambda *_: None)
            for node, port in ((a, a_port), (b, b_port))
        )
        link = Link.__new__(Link)
        link.intf1, link.intf2 = here, there
        here.link = there.link = link
        if b_port == 0:
            there.ip, there.prefixLen = _ip(self.topology.host_ip[self._host(b)]), 32
        self._net.links.append(link)

    def _host(self, name: str) -> int:
        return self.topology.host_names.index(name)

    def _configure(self, node: int) -> None:
        """Interfaces of one namespace: up, without IPv6 and offloads, hosts with addresses."""
        topology, name = self.topology, self._names[node]
        with inside(self._pid(name)):
            interfaces = [str(intf) for intf in self._nodes[name].intfList()]
            no_ipv6()
            no_offloads(interfaces)
            commands = [f"link set {interface} up" for interface in ["lo", *interfaces]]
            if node >= topology.n_switches:
                no_tail_loss_probes()
                host = node - topology.n_switches
                tor = int(topology.host_tor[host])
                gateway, mac = _ip(topology.switch_ip[tor]), _mac(int(topology.switch_mac[tor]))
                commands += [
                    f"addr add {_ip(topology.host_ip[host])}/32 dev {interfaces[0]}",
                    f"neigh add {gateway} lladdr {mac} nud permanent dev {interfaces[0]}",
                    f"route add {gateway} dev {interfaces[0]} scope link",
                    f"route add default via {gateway} dev {interfaces[0]} rto_min {RTO_MIN}",
                ]
            ip_batch(commands)

    def _command(self, switch: int) -> list[str]:
        name = self.topology.switch_names[switch]
        if self.backend == "bmv2":
            program = ["simple_switch_grpc", "-L", "warn", "--log-console"]
        else:
            program = [sys.executable, "-m", _SOFT_SWITCH]
            program += ["--seed", str(_seed(self._seed, switch))]
        command = ["mnexec", "-a", str(self._pid(name)), *program, "--no-p4"]
        for port, interface in self._nodes[name].intfs.items():
            command += ["-i", f"{port}@{interface}"]
        command += ["--device-id", str(switch + 1), "--thrift-port", str(THRIFT_PORT)]
        if self.backend == "bmv2":
            events = self._state.sockets / f"{name}.events"
            command += ["--notifications-addr", f"ipc://{events}"]
        return [*command, "--", "--grpc-server-addr", f"unix:{self.p4runtime(name)}"]

    def p4runtime(self, switch: str) -> Path:
        """The Unix socket of a switch's P4Runtime server; gRPC takes it as ``unix:PATH``."""
        return self._state.sockets / f"{switch}.grpc"

    def _wait_for(self, switch: int, deadline: float) -> None:
        """Until a switch's two servers accept connections."""
        name = self.topology.switch_names[switch]
        tries: list[Callable[[], socket.socket]] = [
            lambda: _connect_unix(self.p4runtime(name)),
            lambda: self._connect_thrift(name),
        ]
        for attempt in tries:
            while True:
                ended = self._watched.ended(name)
                if ended or time.monotonic() > deadline:
                    what = f"ended with {ended}" if ended else f"does not answer in {START_S} s"
                    log = self.logs / f"{name}.log"
                    words = self._watched.last_words(name)
                    raise ProcessError(f"switch {name} {what}: {words or 'no message'} ({log})")
                try:
                    attempt().close()
                    break
                except OSError:
                    time.sleep(0.05)

    def _connect_thrift(self, name: str) -> socket.socket:
        with inside(self._pid(name)):
            return socket.create_connection(("127.0.0.1", THRIFT_PORT), timeout=30)

    def _control(self, switch: int, p4info: Path) -> RemoteSwitch:
        from testbed.control.remote.connection import RemoteError
        from testbed.control.remote.switch import RemoteSwitch
        from testbed.control.remote.thrift import RegisterClient

        name = self.topology.switch_names[switch]
        address = f"unix:{self.p4runtime(name)}"
        try:
            return RemoteSwitch(
                name,
                address,
                switch + 1,
                p4info,
                lambda: RegisterClient(self._connect_thrift(name)),
                clock=lambda: self.now_ns,
            )
        except RemoteError as e:
            raise ProcessError(str(e)) from None

    # ---- the run -----------------------------------------------------------------------------

    def start(self) -> None:
        """Time 0: sources send from here on."""
        self._hosts.start()

    @property
    def now_ns(self) -> int:
        """Nanoseconds since `start`."""
        return 0 if self._agents is None else self._agents.now_ns

    @property
    def _hosts(self) -> HostAgents:
        if self._agents is None:
            raise NetworkError("the network is down")
        return self._agents

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames; returns its number."""
        return self._hosts.add_source(source)

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, over the same flows, once it has sent what it had."""
        self._hosts.feed(number, source)

    def run_until(self, time_ns: int) -> None:
        """Wait for a time."""
        while (left := time_ns - self.now_ns) > 0:
            time.sleep(left / 1e9)

    def drain(self, quiet_s: float = 0.3, patience_s: float = 10.0) -> None:
        """Wait until the sources have sent everything and nothing has arrived for a while."""
        agents = self._hosts
        while agents.waiting:
            time.sleep(0.02)
        deadline = time.monotonic() + patience_s
        last = agents.now_ns
        while time.monotonic() < deadline:
            last = max(last, agents.statistics()["last_arrival_ns"])
            if agents.now_ns - last > quiet_s * 1e9:
                return
            time.sleep(0.02)

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Packets each flow of a source has sent, uint32[F], live."""
        return self._hosts.sent(number)

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Packets of each flow that its destination host has got, uint32[F], live."""
        return self._hosts.delivered(number)

    def replies(self) -> npt.NDArray[Any]:
        """ICMP time-exceeded messages that hosts received. A copy."""
        return self._hosts.replies()

    def drops(self) -> npt.NDArray[Any]:
        """No packet's end is seen in a real network: always empty, with the columns of the face."""
        return np.empty(0, DROP)

    def host_statistics(self) -> dict[str, int]:
        """The hosts' agents' own totals, see `testbed.network.hosts.HostAgents.statistics`."""
        return self._hosts.statistics()

    def late(self) -> npt.NDArray[np.int64]:
        """Frames by how late they were sent, see `testbed.network.hosts.HostAgents.late`."""
        return self._hosts.late()

    @property
    def statistics(self) -> Statistics:
        """What can be known.

        ``sent`` is what left the hosts, ``delivered`` what they got but for ICMP messages, the
        packets of their kernels' own connections included. ``fault_drops`` are those of the P4
        fault tables and ``ttl_drops`` the answered ones; what an overloaded switch or another
        injector drops is seen as sent but not delivered.
        """
        agents = self._hosts.statistics()
        return Statistics(
            sent=sum(sum(self._transmitted(name).values()) for name in self.topology.host_names),
            delivered=agents["delivered"] + agents["strangers"],
            fault_drops=int(self.fault_drops().sum()),
            queue_drops=0,
            ttl_drops=agents["replies"],
            other_drops=agents["receive_drops"],
            misdelivered=agents["misdelivered"],
            packet_hops=sum(sum(self._transmitted(name).values()) for name in self._switch_names),
            in_flight=0,
        )

    @property
    def _switch_names(self) -> list[str]:
        return self.topology.switch_names

    def _transmitted(self, name: str) -> dict[str, int]:
        counts = transmitted(self._pid(name))
        counts.pop("lo", None)
        return counts

    def link_packets(self) -> npt.NDArray[np.uint64]:
        """Packets put on each directed fabric link so far: uint64[n_links]."""
        topology = self.topology
        counts = [self._transmitted(name) for name in self._switch_names]
        return np.array(
            [
                counts[switch][f"{self._switch_names[switch]}-eth{port}"]
                for switch, port in zip(
                    topology.link_src.tolist(), topology.link_src_port.tolist(), strict=True
                )
            ],
            np.uint64,
        )

    def fault_drops(self) -> npt.NDArray[np.uint64]:
        """Packets that the P4 fault tables dropped at each directed link: uint64[n_links]."""
        from testbed.control.switch import for_each

        every_port = range(1, self.topology.k + 1)
        counts = for_each(self.controls, lambda c: c.counter(FAULT.dropped, every_port))
        ports = zip(self.topology.link_src, self.topology.link_src_port, strict=True)
        return np.array([counts[s]["packets"][p] for s, p in ports], np.uint64)

    def queue_drops(self) -> npt.NDArray[np.uint64]:
        """Not known of real switches: zeros, uint64[n_links]."""
        return np.zeros(self.topology.n_links, np.uint64)

    @property
    def degraded(self) -> list[str]:
        """Switches that died or cannot be reached, and how: ``"agg0_1: signal SIGKILL"``."""
        lost = {
            switch: control.lost
            for switch, control in enumerate(self.controls)
            if control.lost and not control.closed
        }
        found = sorted((lost | self._deaths).items())
        return [f"{self._switch_names[switch]}: {how}" for switch, how in found]

    def _died(self, name: str, how: str) -> None:
        switch = self.topology.switch(name)
        self._deaths[switch] = how
        if switch < len(self.controls):
            self.controls[switch].give_up(how)

    def process(self, switch: str) -> int:
        """Process id of a switch."""
        return self._watched.pid(switch)

    def egress(self, link: int) -> tuple[int, str]:
        """Where a directed link begins: a process in that namespace, and the interface."""
        name = self._switch_names[int(self.topology.link_src[link])]
        return self._pid(name), f"{name}-eth{int(self.topology.link_src_port[link])}"

    def host(self, name: str) -> Any:
        """A Mininet host, for commands of its own: ``host("h0_0_0").cmd("ping ...")``."""
        return self._nodes[name]

    def host_pids(self) -> list[int]:
        """For each host, the id of a process in its namespace."""
        return [self._pid(name) for name in self.topology.host_names]

    def spawn(self, host: int, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process on a host, its output appended to a log. It ends with the network.

        Raises:
            NetworkError: The network is down, or there is no such command.
        """
        with self._spawning, open(log, "ab") as output:
            if self._stopped:
                raise NetworkError("the network is down")
            with inside(self._pid(self.topology.host_names[host])):
                try:
                    return subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=self._state.environment(),
                        start_new_session=True,
                    )
                except OSError as e:
                    raise NetworkError(f"cannot start {command[0]}: {e.strerror}") from None

    def prompt(self) -> None:
        """Mininet's prompt, until the user leaves it."""
        from mininet.cli import CLI

        CLI(self._net)

    def _pid(self, name: str) -> int:
        return int(self._nodes[name].pid)

    # ---- the end -----------------------------------------------------------------------------

    def before_stop(self, close: Callable[[], None]) -> None:
        """Have something of the network's user called before everything is taken down."""
        self._before_stop.append(close)

    def stop(self) -> None:
        """Take everything down. What `sent` and `delivered` gave stays readable."""
        while self._before_stop:
            self._before_stop.pop()()
        with self._spawning:
            self._stopped = True
        if self._agents is not None:
            self._agents.close()
            self._agents = None
        self._watched.stop()
        for switch, control in enumerate(self.controls):
            if control.lost:
                self._deaths.setdefault(switch, control.lost)
        for control in self.controls:
            control.close()
        self._state.remove()
        for node in self._nodes.values():
            _forget(node)
        self._nodes = {}


def _forget(node: Any) -> None:
    """Close what Mininet holds of a node whose shell has been ended."""
    if node.shell is None:
        return
    node.shell.wait()
    for close in (node.stdin.close, partial(os.close, node.slave)):
        try:
            close()
        except OSError:
            continue
    node.shell = None


@contextmanager
def _token(token: str) -> Iterator[None]:
    """Give the token to processes that Mininet starts."""
    os.environ[TOKEN] = token
    try:
        yield
    finally:
        del os.environ[TOKEN]


def _connect_unix(path: Path) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.connect(str(path))
    except OSError:
        s.close()
        raise
    return s


def _seed(seed: int, switch: int) -> int:
    return int(np.random.SeedSequence([seed, switch]).generate_state(1, np.uint64)[0])


def _ip(address: int | np.integer) -> str:
    return ".".join(str(int(address) >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _mac(address: int) -> str:
    return ":".join(f"{address >> shift & 0xFF:02x}" for shift in range(40, -8, -8))
