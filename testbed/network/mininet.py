# SPDX-License-Identifier: Apache-2.0
"""The fat-tree under Mininet, in real time: hosts with kernels of their own, and real switches.

Every host and every switch has a network namespace of its own. Switches too, because BMv2's Thrift
server always listens on all addresses: in a namespace that holds only ``lo`` and ports without
addresses, that is loopback. A BMv2 switch is a process; all soft switches are one
process outside, whose sockets are in those namespaces. Their P4Runtime servers listen on Unix
sockets. So the machine's own namespace gets no interface and no listener, and everything ends with
the processes (`testbed.network.processes`).

`MininetNetwork` has the methods of `testbed.network.virtual.VirtualNetwork`; times are nanoseconds
since `MininetNetwork.start`. Its parts are the nodes and cables (`testbed.network.nodes`), the
switches' processes (`testbed.network.switches`), the hosts' agents (`testbed.network.hosts`) and
the emulator's own losses (`testbed.network.losses`).
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from testbed.dataplane import FAULT
from testbed.dataplane.endings import ANSWERED
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.hosts import HostAgents
from testbed.network.losses import Losses
from testbed.network.namespaces import inside
from testbed.network.network import DROP, EmulatorDrops, NetworkError, Statistics
from testbed.network.nodes import Nodes
from testbed.network.processes import ProcessError, RunState, open_more_files
from testbed.network.requirements import missing
from testbed.network.sources import Source
from testbed.network.speed import slowness
from testbed.network.switches import STOPPED, Backend, Switches

if TYPE_CHECKING:
    from testbed.control.remote.switch import RemoteSwitch


NICE_HOSTS = 10
"""The nice value of programs on hosts.

If there are too few processors, they yield to switches and controller: TCP gets slower, but no
switch drops packets.
"""


class MininetNetwork:
    """A running fat-tree. Its construction brings it up; `start` begins the run's time.

    Args:
        topology: The fabric.
        backend: The kind of its switches.
        program: The file of the program as BMv2's JSON.
        p4info: The file of its P4Info, as text.
        logs: The folder for each process's output and all exit codes.
        seed: Seeds the random numbers of soft switches; BMv2 takes no seed.
        state: The folder of the state files, which list what `testbed.network.processes.clean` has
            to remove; by default the machine's.
        foreign: Whether the program is a user's. Nothing of it is known then, so that it has no
            faults and no counts.
        bw: The rate of every cable in Mb/s; 0: as fast as the machine.

    Raises:
        NetworkError: Something is missing, or does not start.
    """

    def __init__(
        self,
        topology: PacketFabric,
        backend: Backend,
        program: Path,
        p4info: Path,
        logs: Path,
        seed: int = 1,
        state: Path | None = None,
        *,
        foreign: bool = False,
        bw: float = 0,
    ) -> None:
        reason = missing(backend)
        if reason:
            raise NetworkError(reason)
        self.topology = topology
        self.backend: Backend = backend
        self.logs = logs
        self._agents: HostAgents | None = None
        self._before_stop: list[Callable[[], None]] = []
        self._spawning = threading.Lock()
        self._stopped = False
        self._losses: Losses | None = None
        # by switches that restarted, in the order of `_fault_drops`
        self._dropped_before = np.zeros(topology.n_links + topology.n_hosts, np.uint64)
        self._quiet = False
        self._stopped_switches: set[int] = set()
        self._cut_off: set[int] = set()
        self._dead: set[int] = set()
        self._program = program, p4info
        try:
            self._state = RunState(state)
        except ProcessError as e:
            raise NetworkError(str(e)) from None
        try:
            self._nodes = Nodes(topology, bw, keep_up=backend == "bmv2")
            self._switches = Switches(
                topology,
                backend,
                self._nodes,
                self._state,
                logs,
                seed,
                clock=lambda: self.now_ns,
                on_death=self._switch_died,
                foreign=foreign,
            )
        except BaseException:
            self._state.remove()
            raise
        try:
            self._bring_up(foreign)
        except (ProcessError, NetworkError, OSError) as e:
            self.stop()
            raise NetworkError(str(e)) from None
        except BaseException:
            self.stop()
            raise

    def _bring_up(self, foreign: bool) -> None:
        """Make the nodes, start the switches and the hosts' agents, and begin to count losses."""
        topology, nodes = self.topology, self._nodes
        open_more_files()
        nodes.make(self._state.token)
        self._switches.start(*self._program)
        self._agents = HostAgents(
            [(nodes.pid(name), f"{name}-eth0") for name in topology.host_names]
        )
        if not foreign:
            self._losses = Losses(topology, nodes, self.controls, self._switches.sockets())
        self._switches.watch()

    def __enter__(self) -> MininetNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- the run -----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the run: this moment is time 0, and sources send from now on."""
        if self._losses is not None:
            self._losses.begin()
        self._hosts.start()

    @property
    def now_ns(self) -> int:
        """Return the time since `start` in ns; 0 while the network is down."""
        return 0 if self._agents is None else self._agents.now_ns

    @property
    def _hosts(self) -> HostAgents:
        if self._agents is None:
            raise NetworkError("the network is down")
        return self._agents

    def _switch_died(self, switch: int) -> None:
        self._dead.add(switch)
        if self._losses is not None:
            self._losses.died(switch)

    def restart(self, switch: int) -> None:
        """End a switch and start it anew, without any state; `answers` tells when it is up.

        Packets that are lost because of it count as lost in the switch, see `emulator_drops`.
        """
        self._count_before_end(switch)
        self._switches.restart(switch)
        self._dead.discard(switch)

    def _count_before_end(self, switch: int) -> None:
        """Keep what a switch has counted, before it is ended."""
        if self._losses is None:
            return
        own = np.concatenate((self.topology.link_src, self.topology.host_tor)) == switch
        self._dropped_before[own] = self._dropped_at_egress()[own]
        self._losses.restarted(switch)

    def stop_switch(self, switch: int) -> None:
        """End a switch, until `start_switch`; what is sent to it meanwhile is lost there."""
        self._count_before_end(switch)
        self._switches.end(switch, STOPPED)
        self._stopped_switches.add(switch)
        self._note_cut_off()

    def start_switch(self, switch: int) -> None:
        """Start a switch that was stopped, without any state; `answers` tells when it is up."""
        self._switches.begin(switch)
        self._stopped_switches.remove(switch)
        self._dead.discard(switch)

    @property
    def stopped_switches(self) -> list[int]:
        """Return the numbers of the switches that were stopped and not started again."""
        return sorted(self._stopped_switches)

    def set_cable(self, a: str, b: str, up: bool) -> None:
        """Switch the cables between two nodes on or off; see `Nodes.set_cable`."""
        self._nodes.set_cable(a, b, up)
        self._note_cut_off()

    def stop_host(self, host: int) -> None:
        """Cut a host off, until `start_host`, and end the programs that run on it."""
        self._nodes.stop_host(self.topology.host_names[host])
        self._note_cut_off()

    def start_host(self, host: int) -> None:
        """Let a stopped host reach the network again, with the address and routes that it had."""
        self._nodes.start_host(self.topology.host_names[host])

    def _note_cut_off(self) -> None:
        self._cut_off |= self.switched_off()[1]

    @property
    def cut_off(self) -> set[int]:
        """Return the hosts that were cut off at some time, as `switched_off` has them."""
        return self._cut_off

    @property
    def stopped_hosts(self) -> list[str]:
        """Return the names of the hosts that were stopped and not started again."""
        return self._nodes.stopped_hosts

    def restore_hosts(self) -> None:
        """Give hosts their addresses and routes back, if their interfaces were down meanwhile."""
        self._nodes.restore_hosts()

    def switched_off(self) -> tuple[set[int], set[int]]:
        """Return the directed links that are switched off now, at an end or with a switch, and the
        hosts that are cut off with their link or ToR. A switch that died is off as one that was
        stopped: what it lost says nothing of its links."""
        topology, stopped = self.topology, self._stopped_switches | self._dead
        cables = {frozenset(ends) for ends in self._nodes.cables_down}
        names = topology.switch_names
        links = {
            link
            for link, (a, b) in enumerate(
                zip(topology.link_src.tolist(), topology.link_dst.tolist(), strict=True)
            )
            if {a, b} & stopped or frozenset((names[a], names[b])) in cables
        }
        hosts = {
            host
            for host, (name, tor) in enumerate(
                zip(topology.host_names, topology.host_tor.tolist(), strict=True)
            )
            if tor in stopped or frozenset((name, names[tor])) in cables
        }
        return links, hosts

    def answers(self, switch: int) -> bool:
        """Return True if a restarted switch, given by its number, is up.

        Then its new sockets are watched for drops.
        """
        if not self._switches.answers(switch):
            return False
        if self._losses is not None:
            self._losses.sockets[switch] = self._switches.sockets_of(switch)
        return True

    def load_again(self, switch: int) -> None:
        """Load the user's program into a switch that was started again."""
        self._switches.load_again(switch, *self._program)

    def add_source(self, source: Source) -> int:
        """Let hosts send a source's frames and return the source's number."""
        return self._hosts.add_source(source)

    def feed(self, number: int, source: Source) -> None:
        """Give a source its next frames, of the same flows, once it has sent its former ones."""
        self._quiet = False
        self._hosts.feed(number, source)

    def run_until(self, time_ns: int) -> None:
        """Wait until the run's clock reaches ``time_ns``."""
        while (left := time_ns - self.now_ns) > 0:
            time.sleep(left / 1e9)

    def hold(self, gate_ns: int) -> None:
        """Let the run's clock go on until ``gate_ns`` and stand still there; hosts send by it."""
        self._hosts.hold(gate_ns)

    @property
    def held_s(self) -> float:
        """Return for how many seconds of real time `hold` has made the clock stand still."""
        return self._hosts.held_ns / 1e9

    @property
    def arrived(self) -> int:
        """Return how many packets that the agents sent have reached their host, without real TCP.

        Real TCP does not stand still with the clock, see `hold`.
        """
        return self._hosts.statistics()["from_agents"]

    @property
    def queued(self) -> float:
        """Return the used share of the fullest buffer of the switches' sockets, from 0 to 1.

        It is 0 for BMv2, whose rings do not tell.
        """
        assert self._losses is not None
        return max((sockets.used() for sockets in self._losses.sockets), default=0.0)

    def drain(self, quiet_s: float = 0.3, patience_s: float = 10.0) -> None:
        """Wait until the sources have sent everything and no packet has arrived for ``quiet_s``.

        The wait ends after ``patience_s`` in any case. Both are longer on a slow machine
        (`testbed.network.speed.slowness`).
        """
        agents, quiet_s, patience_s = self._hosts, quiet_s * slowness(), patience_s * slowness()
        while agents.waiting:
            time.sleep(0.02)
        deadline = time.monotonic() + patience_s
        self._quiet = True
        last = agents.now_ns
        while time.monotonic() < deadline:
            last = max(last, agents.statistics()["last_arrival_ns"])
            if agents.now_ns - last > quiet_s * 1e9:
                return
            time.sleep(0.02)

    def silence(self) -> None:
        """Keep the hosts' kernels from sending anything more, so that the network can drain.

        The kernel of a host goes on to resend what connections that were ended have not delivered.
        """
        self._nodes.without_routes()

    def sent(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets that each flow of a source has sent, a live view, uint32[F]."""
        return self._hosts.sent(number)

    def delivered(self, number: int) -> npt.NDArray[np.uint32]:
        """Return the packets of each flow that reached its destination, a live view, uint32[F]."""
        return self._hosts.delivered(number)

    def lost(self, number: int, sent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the packets of each flow that were sent and did not arrive, int64[F]; the clock
        stands still while none is under way."""
        return sent - np.minimum(self.delivered(number), sent)

    def withheld(self) -> None:
        """Return None: real switches do not report the answers that they withheld."""

    def replies(self) -> npt.NDArray[Any]:
        """Return a copy of the ICMP time-exceeded messages that hosts received, `REPLY` [n]."""
        return self._hosts.replies()

    def drops(self) -> npt.NDArray[Any]:
        """Return an empty array of `DROP`: a real network does not tell where a packet was lost."""
        return np.empty(0, DROP)

    # ---- what was counted --------------------------------------------------------------------

    def late(self) -> npt.NDArray[np.int64]:
        """Return the number of frames by delay: see `testbed.network.hosts.HostAgents.late`."""
        return self._hosts.late()

    @property
    def statistics(self) -> Statistics:
        """Return the packet totals of the network since `start`.

        ``sent`` is what left the hosts, the packets of their kernels' own connections included, and
        the ICMP messages of switches; ``delivered`` is all that came to hosts. ``fault_drops`` are
        those of the P4 fault tables, and ``other_drops`` are packets that a switch has no route for
        or cannot parse. What real switches, hosts and cables lost is in `emulator_drops`.
        """
        assert self._losses is not None
        agents, ended = self._hosts.statistics(), self._losses.ended()
        causes = ended.by_cause
        return Statistics(
            sent=self._losses.sent_by_hosts() + causes[ANSWERED],
            delivered=agents["received"],
            fault_drops=int(self._dropped_at_egress().sum()) + int(ended.from_hosts.sum()),
            queue_drops=0,
            ttl_drops=causes["ttl"] + causes[ANSWERED],
            other_drops=sum(causes[cause] for cause in ("no_route", "local", "malformed")),
            misdelivered=agents["misdelivered"],
            packet_hops=_sent_by(self._nodes, self.topology.switch_names),
            in_flight=0,
        )

    def link_packets(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent on each directed fabric link so far, uint64[n_links]."""
        return _link_packets(self.topology, self._nodes)

    def fault_drops(self) -> npt.NDArray[np.uint64]:
        """Return the packets that P4 fault tables dropped at each link, uint64[n_links]."""
        return self._dropped_at_egress()[: self.topology.n_links]

    def _dropped_at_egress(self) -> npt.NDArray[np.uint64]:
        """Return the same, followed by each host's link from its ToR, uint64[n_links + n_hosts]."""
        return self._dropped_before + _fault_drops(self.topology, self.controls)

    def host_link_counts(self) -> npt.NDArray[np.uint64]:
        """Return the packets sent, dropped by P4 fault tables and dropped by queues, of which real
        switches count none, on each directed link of a host, uint64[3, 2 * n_hosts]."""
        assert self._losses is not None
        topology, nodes = self.topology, self._nodes
        counts = np.zeros((3, topology.n_hosts, 2), np.uint64)
        names = [topology.switch_names[tor] for tor in topology.host_tor.tolist()]
        of_tors = {name: nodes.counters(name) for name in dict.fromkeys(names)}
        for host, (tor, port) in enumerate(zip(names, topology.host_port.tolist(), strict=True)):
            host_name = topology.host_names[host]
            up, _ = nodes.counters(host_name)[f"{host_name}-eth0"]
            down, _ = of_tors[tor][f"{tor}-eth{port}"]
            counts[0, host] = up, down
        counts[1, :, 0] = self._losses.ended().from_hosts
        counts[1, :, 1] = self._dropped_at_egress()[topology.n_links :]
        return counts.reshape(3, -1)

    def corrupted(self) -> npt.NDArray[np.uint64]:
        """Return the packets that arrived corrupted on each link, uint64[n_links]; the switch there
        drops them."""
        assert self._losses is not None
        return self._losses.ended().corrupted.astype(np.uint64)

    def queue_drops(self) -> npt.NDArray[np.uint64]:
        """Return zeros, uint64[n_links]: real switches do not count drops of full queues."""
        return np.zeros(self.topology.n_links, np.uint64)

    def emulator_drops(self, taken: npt.NDArray[np.uint64]) -> EmulatorDrops:
        """Return the packets lost so far that no fault dropped: after `drain` all of them, also
        those that switches dropped while they restarted.

        Before `drain` only packets known to be dropped count.

        Args:
            taken: Packets that faults dropped on each directed link, also those of hosts,
                uint64[n_links + 2 * n_hosts]: those of `fault_drops`, of `host_link_counts` and of
                a kernel injector.
        """
        assert self._losses is not None
        drops = self._hosts.receive_drops()
        return self._losses.count(drops, taken, self._quiet)

    # ---- its parts ---------------------------------------------------------------------------

    @property
    def controls(self) -> list[RemoteSwitch]:
        """Return the control of each switch, in the topology's order."""
        return self._switches.controls

    @property
    def degraded(self) -> list[str]:
        """Return a line for each switch or node that died or cannot be reached, with the reason.

        For example ``"agg0_1: died at 12:00:00 (signal SIGKILL)"``.
        """
        return [*self._switches.degraded, *self._nodes.disappeared]

    @property
    def disappeared(self) -> list[str]:
        """Return a line for each node whose process has ended."""
        return self._nodes.disappeared

    def release_waiting(self) -> None:
        """Release whoever waits for the prompt of a node whose process has ended."""
        self._nodes.release_waiting()

    @property
    def cables_down(self) -> list[tuple[str, str]]:
        """Return the cables with an interface that is down, as pairs of node names.

        Mininet's command ``link`` switches interfaces off.
        """
        return self._nodes.cables_down

    def process(self, switch: str) -> int:
        """Return the id of the process that a switch runs in; all soft switches share one."""
        return self._switches.pid(switch)

    def egress(self, link: int) -> tuple[int, str]:
        """Return where a directed link begins, also one of a host: a process id in that namespace
        and the interface."""
        topology = self.topology
        host, down = divmod(link - topology.n_links, 2)
        if host < 0:
            switch, port = int(topology.link_src[link]), int(topology.link_src_port[link])
        elif down:
            switch, port = int(topology.host_tor[host]), int(topology.host_port[host])
        else:
            name = topology.host_names[host]
            return self._nodes.pid(name), f"{name}-eth0"
        name = topology.switch_names[switch]
        return self._nodes.pid(name), f"{name}-eth{port}"

    def host(self, name: str) -> Any:
        """Return a Mininet host, to run commands on it: ``host("h0_0_0").cmd("ping ...")``."""
        return self._nodes.node(name)

    def ping_all(self) -> float:
        """Ping each host from each other one, and return the percentage of packets lost."""
        return self._nodes.ping_all()

    def host_pids(self) -> list[int]:
        """Return, for each host, the id of a process in its namespace."""
        return [self._nodes.pid(name) for name in self.topology.host_names]

    def spawn(self, host: int, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a process on the host with this number and return it; it ends with the network.

        Its output is appended to the file ``log``.

        Raises:
            NetworkError: The network is down, or there is no such command.
        """
        with self._spawning, open(log, "ab") as output:
            if self._stopped:
                raise NetworkError("the network is down")
            with inside(self._nodes.pid(self.topology.host_names[host])):
                try:
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env=self._state.environment(),
                        start_new_session=True,
                    )
                except OSError as e:
                    raise NetworkError(f"cannot start {command[0]}: {e.strerror}") from None
        with suppress(OSError):  # sched(7); there is no such file where sessions do not count
            Path(f"/proc/{process.pid}/autogroup").write_text(str(NICE_HOSTS))
        return process

    def prompt(self, cli: Callable[[Any], object]) -> None:
        """Run Mininet's prompt, ``cli`` (its class ``CLI`` or a subclass), until the user exits."""
        self._nodes.prompt(cli)

    # ---- the end -----------------------------------------------------------------------------

    def before_stop(self, close: Callable[[], None]) -> None:
        """Register a function that `stop` calls before it takes the network down."""
        self._before_stop.append(close)

    def stop(self) -> None:
        """Take the network down; arrays that `sent` and `delivered` returned stay valid."""
        while self._before_stop:
            self._before_stop.pop()()
        with self._spawning:
            self._stopped = True
        if self._agents is not None:
            self._agents.close()
            self._agents = None
        self._switches.stop()
        self._state.remove()
        self._nodes.forget()


# ---- what the kernel's interfaces and the switches' fault tables have counted --------------------


def _sent_by(nodes: Nodes, names: Sequence[str]) -> int:
    """Return the packets that the nodes ``names`` have sent on all their cables."""
    return sum(packets for name in names for packets, _ in nodes.counters(name).values())


def _link_packets(topology: PacketFabric, nodes: Nodes) -> npt.NDArray[np.uint64]:
    """Return the packets sent on each directed fabric link so far, uint64[n_links]."""
    names = topology.switch_names
    counts = [nodes.counters(name) for name in names]
    ends = zip(topology.link_src.tolist(), topology.link_src_port.tolist(), strict=True)
    return np.array(
        [counts[switch][f"{names[switch]}-eth{port}"][0] for switch, port in ends], np.uint64
    )


def _fault_drops(topology: PacketFabric, controls: list[RemoteSwitch]) -> npt.NDArray[np.uint64]:
    """Return the packets that P4 fault tables at egress ports dropped: on each directed link, and
    then on each host's link from its ToR, uint64[n_links + n_hosts]."""
    from testbed.control.switch import for_each

    every_port = range(1, topology.n_ports + 1)
    counts = for_each(controls, lambda c: c.counter(FAULT.dropped, every_port))
    switches = np.concatenate((topology.link_src, topology.host_tor))
    ports = np.concatenate((topology.link_src_port, topology.host_port))
    packets = [counts[s]["packets"][p] for s, p in zip(switches, ports, strict=True)]
    return np.array(packets, np.uint64)
