# SPDX-License-Identifier: Apache-2.0
"""The fabric's hosts and switches as Mininet nodes, each a namespace, and the cables between.

Mininet makes the nodes and provides its prompt; the cables are made here, in one batch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.namespaces import (
    cut_off,
    dropped_by_cuts,
    entered,
    has_routes,
    inside,
    interface_counters,
    interfaces_down,
    ip_batch,
    limit_rate,
    no_ipv6,
    no_offloads,
    no_tail_loss_probes,
    patient_connections,
)
from testbed.network.network import NetworkError
from testbed.network.processes import TOKEN, ProcessError

_IFNAMSIZ = 16  # linux/if.h, with the zero at the end
HOST_MTU = 1500
FABRIC_MTU = 1600  # with room for the shim besides what hosts may send
PROMPT = b"\x7f"  # of a shell that Mininet has started
RTO_MIN = "1s"  # as RFC 6298 has it: a busy software switch holds packets longer than Linux's 0.2 s


class Nodes:
    """The nodes of a network, once `make` has been called.

    Args:
        topology: The fabric.
        bw: The rate of every cable in Mb/s, as Mininet's ``bw``; 0: as fast as the machine.
        keep_up: Whether a switch's interfaces stay up where a cable is switched off, and what is
            sent there is dropped and counted by the kernel. BMv2 (1.15.5) needs it: it waits for an
            interface that is down, and receives nothing on any other meanwhile.
    """

    def __init__(self, topology: PacketFabric, bw: float = 0, *, keep_up: bool = False) -> None:
        self._topology = topology
        self._bw = bw
        self._keep_up = keep_up
        self._names = [*topology.switch_names, *topology.host_names]
        addresses = [*topology.switch_ip.tolist(), *topology.host_ip.tolist()]
        self._addresses = dict(zip(self._names, map(_ip, addresses), strict=True))
        self._nodes: dict[str, Any] = {}
        self._namespaces: dict[str, int] = {}  # open files, which keep them
        self._stopped: set[str] = set()
        self._cuts: dict[tuple[str, int], bool] = {}  # by switch and port, whether it is cut now

    def make(self, token: str) -> None:
        """Start all nodes, with a run's token in their environment, and connect them.

        Raises:
            ProcessError: A node's process was ended meanwhile.
        """
        with _token(token):
            self._start()
        for name in self._names:
            path = f"/proc/{self.pid(name)}/ns/net"
            self._namespaces[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._connect()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self._configure, range(len(self._names))))

    def pid(self, name: str) -> int:
        """Return the id of a process in a node's namespace."""
        return int(self._nodes[name].pid)

    def node(self, name: str) -> Any:
        """Return the Mininet node called ``name``, a host or a switch."""
        return self._nodes[name]

    def interfaces(self, name: str) -> dict[int, str]:
        """Return the names of a node's interfaces by port number."""
        return {port: str(interface) for port, interface in self._nodes[name].intfs.items()}

    def counters(self, name: str) -> dict[str, tuple[int, int]]:
        """Return, by interface, the packets that a node sent and those that its cable refused.

        The counters can be read even after the node's process has ended.
        """
        with entered(self._namespaces[name]):
            counts = interface_counters()
            cut = dropped_by_cuts() if any(name == node for node, _ in self._cuts) else {}
        counts.pop("lo", None)
        for port, packets in cut.items():
            interface = self.interfaces(name)[port]
            sent, refused = counts[interface]
            counts[interface] = sent, refused + packets
        return counts

    def without_routes(self) -> None:
        """Remove the routes of all hosts, whose kernels then send nothing."""

        def remove(name: str) -> None:
            """Remove the routes of one host."""
            with inside(self.pid(name)):
                ip_batch(["route flush table main"])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(remove, self._topology.host_names))

    def set_cable(self, a: str, b: str, up: bool) -> None:
        """Switch both ends of the cables between two nodes on or off. A host gets its address and
        routes back, which its kernel forgets while its interface is down.

        Raises:
            NetworkError: There is no cable between them.
        """
        ends = [
            (end.node.name, end.node.ports[end])
            for link in self._net.links
            for end in (link.intf1, link.intf2)
            if {link.intf1.node.name, link.intf2.node.name} == {a, b}
        ]
        if not ends:
            raise NetworkError(f"there is no link between {a} and {b}")
        for node, port in ends:
            if node in self._stopped:
                continue
            interface = self.interfaces(node)[port]
            with inside(self.pid(node)):
                if self._keep_up and node in self._topology.switch_names:
                    if self._cuts.get((node, port), False) == up:
                        cut_off(port, interface, not up)
                        self._cuts[node, port] = not up
                else:
                    ip_batch([f"link set {interface} {'up' if up else 'down'}"])
        self.restore_hosts()

    def stop_host(self, name: str) -> None:
        """Switch a host's end of its cable off and end the programs that run on it."""
        self._set_interfaces(name, "down")
        self._stopped.add(name)
        own = os.fstat(self._namespaces[name])
        keep = os.getpid(), self.pid(name)  # the host's shell is Mininet's
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                found = os.stat(folder / "ns" / "net")
                same = (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
                if same and int(folder.name) not in keep:
                    os.kill(int(folder.name), signal.SIGKILL)

    def start_host(self, name: str) -> None:
        """Switch a stopped host's end of its cable on; it gets its address and routes back."""
        self._stopped.discard(name)
        self._set_interfaces(name, "up")
        self.restore_hosts()

    def _set_interfaces(self, name: str, state: str) -> None:
        with inside(self.pid(name)):
            ip_batch([f"link set {each} {state}" for each in self.interfaces(name).values()])

    @property
    def stopped_hosts(self) -> list[str]:
        """Return the names of the hosts that were stopped and not started again."""
        return sorted(self._stopped)

    def restore_hosts(self) -> None:
        """Give each host whose interface is up its address and routes, if it lacks them."""
        for host, name in enumerate(self._topology.host_names):
            with entered(self._namespaces[name]):
                interface = self.interfaces(name)[0]
                if interface not in interfaces_down() and not has_routes():
                    ip_batch(host_commands(self._topology, host, interface))

    @property
    def cables_down(self) -> list[tuple[str, str]]:
        """Return the cables with an interface that is down, as pairs of node names."""
        off = {end for end, cut in self._cuts.items() if cut}
        for name in self._names:
            with entered(self._namespaces[name]):
                down = interfaces_down()
            off |= {(name, port) for port, each in self.interfaces(name).items() if each in down}
        return [
            (link.intf1.node.name, link.intf2.node.name)
            for link in self._net.links
            if {(end.node.name, end.node.ports[end]) for end in (link.intf1, link.intf2)} & off
        ]

    @property
    def disappeared(self) -> list[str]:
        """Return a line for each node whose process has ended."""
        gone = []
        for name, node in self._nodes.items():
            if node.shell is not None and node.shell.poll() is not None:
                what = "host" if name in self._topology.host_names else "switch"
                gone.append(f"{what} {name} disappeared: its process {node.pid} was ended")
        return gone

    def release_waiting(self) -> None:
        """Release whoever waits for the prompt of a node whose process has ended.

        Mininet would wait for the prompt forever, because its own process holds the other end of
        the terminal.
        """
        for node in self._nodes.values():
            if node.shell is not None and node.shell.poll() is not None:
                os.write(node.slave, PROMPT)

    def ping_all(self) -> float:
        """Return the percentage of packets lost by Mininet's ``pingAll``, which prints nothing."""
        return float(self._net.pingAll())

    def prompt(self, cli: Callable[[Any], object]) -> None:
        """Run Mininet's prompt, ``cli`` (its class ``CLI`` or a subclass), until the user exits."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # for what runs there
        try:
            cli(self._net)
        finally:
            signal.signal(signal.SIGINT, before)

    def forget(self) -> None:
        """Close the files that Mininet holds open for nodes whose shells have ended."""
        for node in self._nodes.values():
            if node.shell is None:
                continue
            node.shell.wait()
            for close in (node.stdin.close, partial(os.close, node.slave)):
                try:
                    close()
                except OSError:
                    continue
            node.shell = None
        self._nodes = {}
        for namespace in self._namespaces.values():
            os.close(namespace)
        self._namespaces = {}

    def _start(self) -> None:
        from mininet.net import Mininet
        from mininet.node import Node

        # Mininet would raise limits of the whole machine; a network of this size does not need it
        Mininet.inited = True
        self._net = Mininet(topo=None, build=False)
        begun: list[Any] = []

        class NamespaceNode(Node):
            def _popen(self, *args: Any, **kwargs: Any) -> Any:
                begun.append(self)
                return super()._popen(*args, **kwargs)

        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(NamespaceNode, name, inNamespace=True) for name in self._names]
            while wait(futures, timeout=0.1).not_done:
                # Mininet would wait forever for the prompt of a shell that was killed, because its
                # own process holds the other end of the terminal.
                for node in [node for node in begun if node.shell is not None]:
                    if node.shell.poll() is not None:
                        os.write(node.slave, PROMPT)
        nodes = [future.result() for future in futures]
        self._nodes = dict(zip(self._names, nodes, strict=True))
        for gone in self.disappeared:
            raise ProcessError(gone)
        self._net.hosts = [self._nodes[name] for name in self._topology.host_names]
        self._net.switches = [self._nodes[name] for name in self._topology.switch_names]
        self._net.nameToNode.update(self._nodes)

    def _connect(self) -> None:
        """Make all cables in one batch, each end inside its namespace."""
        commands = []
        for (a, a_port, _), (b, b_port, b_mac), mtu in cables(self._topology):
            address = "" if b_mac is None else f" address {mac_text(b_mac)}"
            commands.append(
                f"link add {_interface(a, a_port)} mtu {mtu} netns {self.pid(a)} type veth "
                f"peer name {_interface(b, b_port)} mtu {mtu}{address} netns {self.pid(b)}"
            )
            self._tell_mininet(a, a_port, b, b_port)
        ip_batch(commands)

    def _tell_mininet(self, a: str, a_port: int, b: str, b_port: int) -> None:
        """Register a cable with Mininet, whose prompt lists interfaces, links and addresses."""
        from mininet.link import Intf, Link

        class Made(Intf):
            def config(self, *_: Any, **__: Any) -> dict[str, Any]:
                """Return {} without a change: `_configure` configures the interface."""
                return {}

            def updateIP(self) -> str:
                """Return the node's address; the prompt puts it in place of the node's name."""
                return str(self.ip)  # that of a switch is the P4 program's, its kernel has none

        here, there = (
            Made(_interface(node, port), self._nodes[node], port, moveIntfFn=lambda *_: None)
            for node, port in ((a, a_port), (b, b_port))
        )
        link = Link.__new__(Link)
        link.intf1, link.intf2 = here, there
        here.link = there.link = link
        for end, name in ((here, a), (there, b)):
            end.ip, end.prefixLen = self._addresses[name], 32
        self._net.links.append(link)

    def _configure(self, node: int) -> None:
        """Set a node's interfaces up, without IPv6 and offloads; give a host address and routes."""
        topology, name = self._topology, self._names[node]
        with inside(self.pid(name)):
            interfaces = list(self.interfaces(name).values())
            no_ipv6()
            no_offloads(interfaces)
            commands = [f"link set {interface} up" for interface in ["lo", *interfaces]]
            if node >= topology.n_switches:
                no_tail_loss_probes()
                patient_connections()
                commands += host_commands(topology, node - topology.n_switches, interfaces[0])
            ip_batch(commands)
            if self._bw:
                limit_rate(interfaces, self._bw)


def cables(
    topology: PacketFabric,
) -> Iterator[tuple[tuple[str, int, int | None], tuple[str, int, int | None], int]]:
    """Yield each cable of a fabric: its two ends and its MTU.

    An end is a node, its port there and its MAC address, which is None where any will do. A host's
    port is 0.
    """
    names = topology.switch_names
    for link in range(0, topology.n_links, 2):
        a, b = int(topology.link_src[link]), int(topology.link_dst[link])
        ports = int(topology.link_src_port[link]), int(topology.link_dst_port[link])
        yield (names[a], ports[0], None), (names[b], ports[1], None), FABRIC_MTU
    for host, name in enumerate(topology.host_names):
        tor = names[int(topology.host_tor[host])]
        own = name, 0, int(topology.host_mac[host])
        yield (tor, int(topology.host_port[host]), None), own, HOST_MTU


def _interface(node: str, port: int) -> str:
    """Return the name of a node's interface, as Mininet has it, if the kernel takes one so long."""
    name = f"{node}-eth{port}"
    return name if len(name) < _IFNAMSIZ else f"eth{port}"


def host_commands(topology: PacketFabric, host: int, interface: str) -> list[str]:
    """Return the arguments of the ``ip`` commands that give a host its address and routes.

    ``host`` is the host's number and ``interface`` the name of its interface.
    """
    tor = int(topology.host_tor[host])
    gateway, mac = _ip(topology.switch_ip[tor]), mac_text(int(topology.switch_mac[tor]))
    return [
        f"addr replace {_ip(topology.host_ip[host])}/32 dev {interface}",
        f"neigh replace {gateway} lladdr {mac} nud permanent dev {interface}",
        f"route replace {gateway} dev {interface} scope link",
        f"route replace default via {gateway} dev {interface} rto_min {RTO_MIN}",
    ]


@contextmanager
def _token(token: str) -> Iterator[None]:
    """Put the run's token into the environment of processes that Mininet starts in the block."""
    os.environ[TOKEN] = token
    try:
        yield
    finally:
        del os.environ[TOKEN]


def _ip(address: Any) -> str:
    return str(IPv4Address(int(address)))


def mac_text(address: int) -> str:
    """Return the text of a MAC address, given as an integer of 48 bits: ``02:00:0a:00:00:02``."""
    return ":".join(f"{address >> shift & 0xFF:02x}" for shift in range(40, -8, -8))
