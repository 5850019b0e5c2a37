# SPDX-License-Identifier: Apache-2.0
"""Mininet's prompt with commands of this testbed: break a link, measure, heal the link.

mininet> fault agg0_1 core2 0.05
mininet> diagnose
mininet> heal
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from mininet.cli import CLI

from analysis.methods.registry import find_methods
from scenarios.experiment.errors import DEFECT, message_of
from scenarios.experiment.inputs import Layout
from scenarios.live.hosts import iperf
from scenarios.live.network import Live
from scenarios.live.power import Power
from scenarios.live.session import NEEDS_CANARY, Own, session
from scenarios.live.watched_run import WatchedNet, watched_net
from scenarios.process.new_file import create_file
from scenarios.process.signals import Stopped
from testbed.errors import UserError
from testbed.fabric.host_links import with_hosts
from testbed.fabric.packet_fabric import PacketFabric
from testbed.network.mininet import MininetNetwork
from testbed.network.network import NetworkError
from testbed.network.packet_sockets import CAPTURE_HEAD, PacketDump
from testbed.traffic.iperf import need_iperf

_SEGMENTS_SHOWN = 8
_IPERF_S = 5
_LOOK_S = 0.5
_NOT_HERE = ("dpctl", "iperfudp", "wait")
"""Mininet's commands that need its own switches or another program."""
_OF_CANARY = ("fault", "heal", "meters", "diagnose")
"""Commands that need the Canary program in the switches."""
_TIERS = {1: ("switches",), 2: ("leaves", "spines"), 3: ("ToRs", "aggregation", "cores")}
"""What the tiers of a fabric are called, from below, by how many there are."""
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class UsageError(UserError):
    """A command was not understood; the message is one line."""


class _Ended(BaseException):
    """A signal ends the prompt. It is no KeyboardInterrupt, which Mininet takes for Ctrl-C and
    ignores."""


def open_prompt(
    layout: Layout,
    logs: Path,
    watch: bool = False,
    script: Path | None = None,
    own: Own | None = None,
) -> None:
    """Bring up a network with Mininet's prompt, and take it down when the user leaves the prompt.

    Args:
        layout: See `scenarios.live.session.session_layout`.
        logs: The folder for the output of the network's processes.
        watch: Whether to show the network in a browser meanwhile.
        script: A file of commands, which are run instead of those that a user types.
        own: The user's program and the rate of cables.

    Raises:
        testbed.network.network.NetworkError: Mininet or its switches cannot run here (one line).
        UsageError: A command of the script failed (one line).
    """
    lines = None if script is None else script.read_text().splitlines()
    with (
        session(layout, logs, own) as (network, live),
        watched_net(watch, network, cast("Live", live)) as watched,
        _ended_by_signals(),
    ):
        network.prompt(partial(Prompt, network=network, live=live, watched=watched, script=lines))


class Prompt(CLI):
    """The prompt: Mininet's commands and those of this testbed, whose docstrings are the texts of
    `help`.

    Args:
        mininet: Mininet's network.
        network: The same network, as an object of this testbed.
        live: The object that injects faults into the network and measures it, a
            `scenarios.live.network.Live`; a `Power` where the switches run a program of the user's.
        watched: The page in browsers that shows verdicts; None without ``watch``.
        script: Lines to run instead of those that a user types; the first that fails ends it.
    """

    def __init__(
        self,
        mininet: Any,
        network: MininetNetwork,
        live: Power,
        watched: WatchedNet | None = None,
        script: Sequence[str] | None = None,
    ) -> None:
        self._script = script
        self._failed = False
        self._network = network
        self._power = live
        self._watched = watched
        self._dumps: dict[int, PacketDump] = {}
        print(_greeting(live.topology, live.measures), flush=True)
        over = threading.Event()
        watch = threading.Thread(target=self._end_with_nodes, args=(over,), daemon=True)
        watch.start()
        try:
            if script is None:
                super().__init__(mininet)
            else:
                nobody, _ = os.pipe()  # nothing is ever typed, and nothing ends
                with open(nobody) as stdin:
                    super().__init__(mininet, stdin=stdin)
        except _Ended as end:
            if gone := network.disappeared:
                raise NetworkError(f"{gone[0]}: the network was stopped") from None
            raise Stopped(*end.args) from None
        finally:
            over.set()
            self._end_dumps()

    def _end_with_nodes(self, over: threading.Event) -> None:
        """End the prompt if processes of nodes were ended from outside, such as by ``mn -c``."""
        while not over.wait(_LOOK_S):
            if self._network.disappeared:
                self._network.release_waiting()
                os.kill(os.getpid(), signal.SIGTERM)  # received by the main thread, which waits
                return

    def get_names(self) -> list[str]:
        """Return the names of the attributes among which `help` looks for commands."""
        hidden = {f"do_{name}" for name in (*_NOT_HERE, *self._without_canary)}
        return [name for name in super().get_names() if name not in hidden]

    @property
    def _without_canary(self) -> tuple[str, ...]:
        """Return the commands that this network has not, as its program is a user's."""
        return () if self._power.measures else _OF_CANARY

    @property
    def _live(self) -> Live:
        return cast("Live", self._power)

    def run(self) -> None:
        """Take commands from the user, or run those of the script.

        Raises:
            UsageError: A command of the script failed (one line).
        """
        if self._script is None:
            super().run()
            return
        for number, text in enumerate(self._script, 1):
            line = text.partition("#")[0].strip()
            if line:
                print(f"{self.prompt}{line}", flush=True)
                if self.onecmd(line):
                    return
            if self._failed:
                raise UsageError(f"line {number} of the script failed: {line}")

    def onecmd(self, line: str) -> Any:
        """Run a command, and return true if it ends the prompt. A user's error prints one line and
        a defect prints a traceback; the prompt stays."""
        try:
            if line.strip():
                self._list_troubles()
            if (word := line.split(maxsplit=1)[:1]) and word[0] in _NOT_HERE:
                raise UsageError("there is no such command: see help")
            if word and word[0] in self._without_canary:
                raise UsageError(f"this {NEEDS_CANARY}")
            return super().onecmd(line)
        except (UserError, OSError) as error:
            self._failed = True
            print(f"{line.split()[0]}: {message_of(error)}", flush=True)
        except Exception:
            self._failed = True
            traceback.print_exc()
            print(DEFECT, file=sys.stderr, flush=True)
        return None

    # ---- this testbed's commands -------------------------------------------------------------

    def do_fault(self, line: str) -> None:
        """fault agg0_1 core2 0.05: let the link from agg0_1 to core2 lose 5 % of its packets
        (the other direction stays well). fault alone lists what is broken."""
        words = line.replace("->", " ").split()
        if not words:
            self._list_faults()
            return
        if len(words) != 3:
            raise UsageError("give a link and a loss rate: fault agg0_1 core2 0.05")
        link = self._link(words[:2])
        try:
            rate = float(words[2])
        except ValueError:
            raise UsageError(f"{words[2]} is not a loss rate: give a number like 0.05") from None
        self._live.fault(link, rate)
        self._list_faults()

    def do_heal(self, line: str) -> None:
        """heal agg0_1 core2: let that link lose nothing any more. heal alone heals all."""
        words = line.replace("->", " ").split()
        links = [self._link(words)] if words else [fault.link for fault in self._live.faults]
        for link in links:
            if not self._live.heal(link):
                names = with_hosts(self._live.topology).link_names
                raise UsageError(f"{names[link]} is not broken")
        self._list_faults()

    def do_link(self, line: str) -> None:
        """link agg0_1 core2 down: switch a cable off, in both directions; up: on again. That is no
        fault, and diagnose blames nothing for it."""
        words = line.replace("--", " ").replace("->", " ").split()
        if len(words) != 3 or words[2] not in ("up", "down"):
            raise UsageError("give two neighbours and up or down: link agg0_1 core2 down")
        self._network.set_cable(words[0], words[1], words[2] == "up")
        self._list_faults()

    def do_switch(self, line: str) -> None:
        """switch agg0_1 stop: end this switch; start: start it again, with the entries that it had;
        restart: both."""
        words = line.split()
        if len(words) != 2 or words[1] not in ("stop", "start", "restart"):
            raise UsageError("give a switch and stop, start or restart: switch agg0_1 stop")
        names = self._live.topology.switch_names
        if words[0] not in names:
            raise UsageError(f"{words[0]} is not a switch: switches are {names[0]} to {names[-1]}")
        switch = names.index(words[0])
        if words[1] != "start":
            self._live.stop_switch(switch)
        if words[1] != "stop":
            entries = self._live.start_switch(switch)
            restored = f"{entries} entries restored"
            yours = "its entries are yours to write"
            what = yours if self._without_canary else restored
            print(f"{words[0]} is up: {what}", flush=True)
        self._list_faults()

    def do_host(self, line: str) -> None:
        """host h0_0_0 stop: cut this host off and end the programs that run on it; start: let it
        reach the network again; restart: both."""
        words = line.split()
        if len(words) != 2 or words[1] not in ("stop", "start", "restart"):
            raise UsageError("give a host and stop, start or restart: host h0_0_0 stop")
        host = self._host(words[0])
        if words[1] != "start":
            self._live.stop_host(host)
        if words[1] != "stop":
            self._live.start_host(host)
        self._list_faults()

    def do_meters(self, line: str) -> None:
        """meters: send a few seconds of traffic and show what Canary's meters counted on the
        segments that lost most."""
        _nothing(line, "meters")
        measured = self._busy(self._live.meters)
        names = self._live.topology.switch_names
        counted, lossy = np.flatnonzero(measured.sent), np.flatnonzero(measured.lost)
        print(
            f"{measured.sent.sum():,} packets counted on {len(counted)} of {len(measured.sent)} "
            f"segments; {measured.lost.sum():,} lost on {len(lossy)}"
        )
        share = measured.lost / np.maximum(measured.sent, 1)
        for segment in lossy[np.argsort(-share[lossy])][:_SEGMENTS_SHOWN].tolist():
            path = " -> ".join(names[s] for s in measured.segments.switches[segment] if s >= 0)
            end = names[measured.segments.downstream[segment]]
            path = path if path.endswith(end) else f"{path} -> {end}"
            print(
                f"  {path}: {measured.sent[segment]:,} sent, {measured.lost[segment]:,} lost "
                f"({share[segment]:.2%})"
            )

    def do_diagnose(self, line: str) -> None:
        """diagnose [METHODS]: send a few seconds of traffic and probes, and show which links each
        method blames: diagnose canary, diagnose flock:p_bad=0.01,007. Those with a * cannot tell
        directions."""
        methods = find_methods(",".join(line.replace(",", " ").split())) if line.strip() else []
        verdicts = self._busy(partial(self._live.diagnose, methods))
        if self._watched is not None:
            self._watched.verdicts(verdicts)
        names = self._live.topology.link_names
        for method, verdict in verdicts.items():
            both = verdict.native == "undirected"
            blamed = [names[link] for link in np.unique(verdict.flagged).tolist()]
            if both:
                blamed = list(dict.fromkeys(_cable(names, link) for link in verdict.flagged))
            print(f"  {method + (' *' if both else ''):19} {', '.join(blamed) or 'no link'}")
            for tie in verdict.ties:
                alike = " or ".join(_cable(names, n) if both else names[n] for n in tie)
                print(f"  {'':19} cannot tell apart {alike}")
            for remark in verdict.remarks:
                print(f"  {'':19} {remark}")
        self._list_faults()

    def do_iperf(self, line: str) -> None:
        """iperf h0_0_0 h3_1_1 [SECONDS]: TCP from the first host to the second, by iperf3."""
        words = line.split()
        if len(words) not in (2, 3) or (len(words) == 3 and not words[2].isdigit()):
            raise UsageError("give two hosts and optionally seconds: iperf h0_0_0 h3_1_1 10")
        need_iperf()
        source, sink = (self._host(name) for name in words[:2])
        seconds = int(words[2]) if len(words) == 3 else _IPERF_S
        if not 1 <= seconds <= 3600 or source == sink:
            raise UsageError("give two different hosts, and 1 to 3600 seconds")
        rate, again = iperf(self.mn[words[0]], self.mn[words[1]], seconds)
        print(f"{words[0]} to {words[1]}: {rate / 1e6:.2f} Mbit/s, {again} segments sent again")

    def do_capture(self, line: str) -> None:
        """capture agg0_1 core2 [FILE]: write what that link carries from now on to a pcap file
        (agg0_1-core2.pcap). capture alone ends all such files."""
        words = line.replace("->", " ").split()
        if not words:
            if not self._dumps:
                raise UsageError("nothing is captured: give a link: capture agg0_1 core2")
            self._end_dumps()
            return
        link = self._link(words[:2])
        if len(words) > 3:
            raise UsageError("give a link and optionally a file: capture agg0_1 core2 FILE")
        if link in self._dumps:
            raise UsageError(f"it is already captured to {self._dumps[link].path}")
        path = Path(words[2] if len(words) == 3 else f"{words[0]}-{words[1]}.pcap")
        try:
            self._dumps[link] = PacketDump(
                *self._network.egress(link), path, create_file(path, CAPTURE_HEAD)
            )
        except FileExistsError:
            raise UsageError(f"{path} exists and is no capture of ours: name another") from None
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
        print(f"capturing to {path}: capture without arguments ends it")

    def default(self, line: str) -> Any:
        """Run a command on a node, whose name comes first."""
        words = line.split()
        if words[0] not in self.mn:
            raise UsageError("there is no such command: see help")
        if "ping6" in words or "-6" in words:
            raise UsageError("no switch forwards IPv6: the P4 program knows IPv4 alone")
        return super().default(line)

    # ---- help --------------------------------------------------------------------------------

    def _end_dumps(self) -> None:
        """End all captures, and print how many packets each file has."""
        while self._dumps:
            _, dump = self._dumps.popitem()
            print(f"{dump.close():,} packets in {dump.path}", flush=True)

    def _busy(self, work: Callable[[], Any]) -> Any:
        """Print that traffic is sent, and return the result of ``work``."""
        print("sending traffic for some seconds ...", flush=True)
        return work()

    def _list_troubles(self) -> None:
        """Print the switches that came back from another controller, and the network's problems."""
        self._network.restore_hosts()
        for name, entries in self._live.restore_taken():
            print(f"{name} is back from another controller: {entries} entries restored", flush=True)
        for what in self._network.degraded:
            print(what, flush=True)

    def _list_faults(self) -> None:
        """Print the injected faults, and what was switched off."""
        names = with_hosts(self._live.topology).link_names
        broken = [f"{names[fault.link]} loses {fault.rate:.4g}" for fault in self._live.faults]
        if not self._without_canary:
            print(f"injected: {', '.join(broken) or 'nothing'}", flush=True)
        hosts = self._network.stopped_hosts
        off = {
            f"{a}--{b}": f"link {a} {b} up"
            for a, b in self._network.cables_down
            if not {a, b} & {*hosts}
        }
        off |= {name: f"host {name} start" for name in hosts}
        stopped = [self._live.topology.switch_names[s] for s in self._network.stopped_switches]
        off |= {name: f"switch {name} start" for name in stopped}
        if off:
            again = next(iter(off.values()))
            print(f"not a fault: switched off: {', '.join(off)} (mend: {again})", flush=True)

    def _link(self, ends: list[str]) -> int:
        """Return the number of the directed link between two switches, or a host and its ToR, given
        by their names."""
        if len(ends) != 2:
            raise UsageError("give a link as two neighbouring switches: agg0_1 core2")
        topology = self._live.topology
        of_host = {*ends} & {*topology.host_names}
        return (with_hosts(topology) if of_host else topology).link("->".join(ends))

    def _host(self, name: str) -> int:
        """Return the number of a host, given by its name."""
        hosts = self._live.topology.host_names
        if name not in hosts:
            raise UsageError(f"{name} is not a host: hosts are {hosts[0]} to {hosts[-1]}")
        return hosts.index(name)


def _nothing(line: str, command: str) -> None:
    """Raise `UsageError` if a command without arguments was given some."""
    if line.strip():
        raise UsageError(f"{command} takes no arguments")


def _cable(names: list[str], link: int) -> str:
    """Return the name of the undirected link of a directed one: ``a--b``."""
    return names[int(link) & ~1].replace("->", "--")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end a command, except Ctrl-C, raise `_Ended` in the block."""

    def end(number: int, _: Any) -> None:
        """Ignore further signals, and raise `_Ended` with the signal's number."""
        for kind in _ENDING:
            signal.signal(kind, signal.SIG_IGN)
        raise _Ended(number)

    before = {kind: signal.getsignal(kind) for kind in _ENDING}
    try:
        for kind in _ENDING:
            if before[kind] != signal.SIG_IGN:
                signal.signal(kind, end)
        yield
    finally:
        for kind in _ENDING:
            signal.signal(kind, before[kind])


def _greeting(topology: PacketFabric, canary: bool) -> str:
    """Return the text that the prompt begins with: names of nodes, and commands to try; fewer if
    the switches do not run the Canary program."""
    hosts, names, tier = topology.host_names, topology.switch_names, topology.tier
    kinds = _TIERS[int(tier.max()) + 1]
    members = [[names[s] for s in np.flatnonzero(tier == each)] for each in range(len(kinds))]
    rows = [
        f"{kind:12}{' to '.join(dict.fromkeys((some[0], some[-1])))}"
        for kind, some in zip(kinds, members, strict=True)
    ]
    parts = "  (pod, ToR, host)" if topology.title.startswith("a K=") else ""
    upper = int(np.argmax(tier[topology.link_src] + tier[topology.link_dst]))  # a link to the top
    link = topology.link_names[upper].replace("->", " ")
    tries = [
        f"  fault {link} 0.05   break a link: it loses 5 %",
        "  meters                    what Canary's meters count",
        "  diagnose                  which links the methods blame",
        "  heal                      mend all links",
    ]
    return "\n".join(
        [
            f"{topology.title} is up: {topology.n_switches} switches, {topology.n_hosts} hosts",
            f"  {'hosts':12}{hosts[0]} to {hosts[-1]}{parts}",
            *(f"  {row}" for row in rows),
            "Try:",
            f"  {hosts[0]} ping -c 3 {hosts[-1]}",
            f"  iperf {hosts[0]} {hosts[-1]}",
            *(tries if canary else []),
            f"  capture {link}      writes its packets to a pcap file",
            "  help, help fault, exit",
        ]
    )
