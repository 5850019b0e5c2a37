# SPDX-License-Identifier: Apache-2.0
"""A network of real packets from Python: break it, run programs on its hosts, and diagnose it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from scenarios.keywords import GivenSettings, as_settings
from scenarios.live.session import Own, session_layout
from testbed.errors import UserError
from testbed.fabric.names import nearest
from testbed.network.network import NetworkError
from testbed.network.requirements import no_namespaces, not_installed
from testbed.rootless import LOOPBACK_UP, forbidden, unshare

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Unpack

_ENDING_S = 30


def net(
    program: str | os.PathLike[str] | None = None,
    bw: float = 0,
    **settings: Unpack[GivenSettings],
) -> Net:
    """Bring up a network of real packets, on which nothing is lost until one breaks it.

    No root is needed: the network runs in a process and in namespaces of its own. It goes down at
    the end of the ``with`` block, or with this program.

    Args:
        program: A P4 program of yours for all switches, as BMv2's JSON with its P4Info beside it
            (``x.json``, ``x.p4info.txtpb``). Its entries are yours to write, by P4Runtime or
            Thrift; there are no faults and no diagnosis then.
        bw: The rate of every link in Mb/s, as Mininet's; by default as fast as the machine.
        settings: As of `run`: ``k=4``, ``topology=``, ``seed=``, ``faults=``, ``backend="bmv2"``;
            those that only runs have, such as ``epochs``, are refused.

    Raises:
        ValueError: A setting makes no sense, or there can be no network here (one line).
    """
    return Net(as_settings(settings), Own(None if program is None else Path(program), bw))


@dataclass(frozen=True)
class Node:
    """A host or switch of a network.

    Attributes:
        name: Such as ``h0_0_0``.
        ip: Its IPv4 address.
    """

    name: str
    ip: str
    _net: Net

    def cmd(self, command: str) -> str:
        """Run a shell command on it, and return what it printed."""
        return self._net._call("cmd", self.name, command)

    def IP(self) -> str:
        """Return its IPv4 address, as Mininet's nodes do."""
        return self.ip


class Net:
    """A network that is up; names as in Mininet where it has them.

    Attributes:
        hosts, switches, links: Their names; links are directed, as ``agg0_1->core2``.
    """

    def __init__(self, given: Mapping[str, Any], own: Own | None = None) -> None:
        own = own or Own()
        layout = session_layout(given)
        own.check(layout)
        backend = cast(Literal["bmv2", "softswitch"], layout.network.name)
        if reason := no_namespaces() or forbidden() or not_installed(backend):
            raise NetworkError(reason)
        here, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [
                    *(*unshare(), "--", *LOOPBACK_UP),
                    *(sys.executable, "-P", "-m", "scenarios.live.served", str(there.fileno())),
                ],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is this program's, which then closes the network
            )
        self._wire = Connection(here.detach())
        try:
            self._wire.send((dict(given), own))
            names = self._answer()
        except BaseException:
            self.stop()
            raise
        self.hosts: list[str] = names["hosts"]
        self.switches: list[str] = names["switches"]
        self.links: list[str] = names["links"]
        addresses = zip(names["nodes"], names["addresses"], strict=True)
        self._nodes = {name: Node(name, ip, self) for name, ip in addresses}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> Node:
        if name not in self._nodes:
            raise UserError(f"there is no node {name!r}: {nearest(name, [*self._nodes])}")
        return self._nodes[name]

    def get(self, name: str) -> Node:
        """Return the node of this name, as ``net[name]``."""
        return self[name]

    # ---- break it, and mend it -----------------------------------------------------------------

    def fault(self, link: str, rate: float) -> None:
        """From now on, drop a share of the packets, 0 to 1, on a directed link: ``agg0_1->core2``.

        Raises:
            ValueError: There is no such link, or the rate is none (one line).
        """
        self._call("fault", link, rate)

    def heal(self, link: str | None = None) -> None:
        """Let a link lose nothing any more; by default all links."""
        self._call("heal", link)

    @property
    def faults(self) -> dict[str, float]:
        """Return the loss rate of each link that has a fault."""
        return self._call("faults")

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        """Switch the link between two nodes ``up`` or ``down``, as Mininet's method of this name.

        Raises:
            ValueError: There is no such link (one line).
        """
        if status not in ("up", "down"):
            raise UserError(f"a link is up or down, not {status!r}")
        self._call("set_link", src, dst, status == "up")

    def stop_switch(self, switch: str) -> None:
        """End a switch, until `start_switch`."""
        self._call("set_switch", switch, False)

    def start_switch(self, switch: str) -> None:
        """Start a switch that was stopped, with the entries that it had."""
        self._call("set_switch", switch, True)

    def stop_host(self, host: str) -> None:
        """Cut a host off, until `start_host`, and end the programs that run on it."""
        self._call("set_host", host, False)

    def start_host(self, host: str) -> None:
        """Let a host that was stopped reach the network again."""
        self._call("set_host", host, True)

    @property
    def off(self) -> list[str]:
        """Return the directed links that are switched off, at an end or with a switch."""
        return self._call("off")

    # ---- look at it ----------------------------------------------------------------------------

    def meters(self) -> dict[str, tuple[int, int]]:
        """Send some seconds of traffic; return the packets that Canary's meters counted on each
        path segment, and how many of them were lost."""
        return self._call("meters")

    def diagnose(self, methods: str | Sequence[str] = ()) -> dict[str, list[str]]:
        """Send some seconds of traffic and probes; return the links that each method blames.

        Args:
            methods: Names, as the option METHODS; by default those of the testbed.
        """
        names = methods if isinstance(methods, str) else ",".join(methods)
        return self._call("diagnose", names)

    def pingAll(self) -> float:
        """Ping each host from each other one, and return the percentage of packets lost."""
        return self._call("ping_all")

    def iperf(self, hosts: tuple[str, str], seconds: int = 5) -> tuple[float, int]:
        """Run TCP from the first host to the second; return the rate that arrived, in bits per
        second, and the number of segments that were sent again."""
        return self._call("iperf", *hosts, seconds)

    @property
    def troubles(self) -> list[str]:
        """Return a line for each switch or host that died."""
        return self._call("troubles")

    # ---- the other process ---------------------------------------------------------------------

    def stop(self) -> None:
        """Take the network down."""
        self._wire.close()
        try:
            self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()

    def _call(self, name: str, *arguments: Any) -> Any:
        """Have the network's process call a method, and return its result."""
        if self._wire.closed:
            raise NetworkError("the network is down")
        self._wire.send((name, *arguments))
        return self._answer()

    def _answer(self) -> Any:
        """Return what the network's process answers, or raise its error."""
        try:
            kind, *content = self._wire.recv()
        except (EOFError, ConnectionError):
            raise NetworkError("the process of the network has ended") from None
        if kind == "error":
            error, trace = content
            raise error from (None if isinstance(error, UserError) else NetworkError(trace))
        return content[0]
