# SPDX-License-Identifier: Apache-2.0
"""An exported lab carries packets between two machines, which are two namespaces joined by VXLAN.

There are no containers here, so the test does what containerlab does with the lab's topology files:
a namespace for each node, a veth or a VXLAN interface for each end of a link, and then each node's
command, in which ``/lab`` is the folder.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from scenarios.command.export_lab import export_lab
from scenarios.experiment.request import make_request
from testbed.dataplane import HASHPIPE
from testbed.network.namespaces import inside, ip_batch
from testbed.network.speed import patience

pytestmark = [pytest.mark.root, pytest.mark.nightly]  # four nodes, each with a process of its own
MACHINES = ["198.51.100.1", "198.51.100.2"]
PACKETS = 2000
RCVBUFFORCE = 33  # socket(7); Python has no name for it
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


UP = "ip link set lo up; echo; exec sleep inf"  # as a container's lo is


@contextmanager
def namespace() -> Iterator[int]:
    """A process in a network namespace of its own, in a session with all that runs there."""
    process = subprocess.Popen(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", UP],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        yield int(children.read_text())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Machines:
    """Two machines and, on each, the nodes that a lab's topology file for it has."""

    def __init__(self, lab: Path, stack: ExitStack) -> None:
        self.lab = lab
        self.nodes: dict[str, int] = {}
        machines = [stack.enter_context(namespace()) for _ in MACHINES]
        wire = [f"link add under netns {machines[0]} type veth peer name under netns {machines[1]}"]
        ip_batch(wire)
        for pid, address in zip(machines, MACHINES, strict=True):
            with inside(pid):
                ip_batch([f"addr add {address}/24 dev under", "link set under up"])
        topologies = []
        for number in range(len(MACHINES)):
            text = (lab / f"topology-{number + 1}.clab.yml").read_text()
            topologies.append(yaml.safe_load(text)["topology"])
            for name in topologies[-1]["nodes"]:
                self.nodes[name] = stack.enter_context(namespace())
        for pid, own, topology in zip(machines, MACHINES, topologies, strict=True):
            with inside(pid):
                ip_batch([line for link in topology["links"] for line in self._lines(link, own)])
        running = [
            self.start(name, *node["exec"][0].replace("/lab/", f"{lab}/").split())
            for topology in topologies
            for name, node in topology["nodes"].items()
        ]
        for process in running:
            _, errors = process.communicate(timeout=120 * patience())
            assert process.returncode == 0, errors

    def _lines(self, link: dict[str, Any], own: str) -> list[str]:
        """The ``ip`` commands that make a link in the namespace of a machine."""
        if link["type"] == "veth":
            (a, a_if, a_mac), (b, b_if, b_mac) = (self._end(end) for end in link["endpoints"])
            mtu = f"mtu {link['mtu']}"
            return [
                f"link add {a_if} {mtu}{a_mac} netns {a} type veth "
                f"peer name {b_if} {mtu}{b_mac} netns {b}"
            ]
        node, name, _ = self._end(link["endpoint"])
        here = f"vx{link['vni']}"
        return [
            f"link add {here} mtu {link['mtu']} type vxlan id {link['vni']} "
            f"remote {link['remote']} local {own} dstport {link['dst-port']} dev under",
            f"link set {here} netns {node} name {name}",
        ]

    def _end(self, end: dict[str, str]) -> tuple[int, str, str]:
        mac = f" address {end['mac']}" if "mac" in end else ""
        return self.nodes[end["node"]], end["interface"], mac

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        """Start a command in a node, in its namespaces, so that it ends with the node."""
        inside_node = ["nsenter", f"--target={self.nodes[name]}", "--net", "--pid"]
        return subprocess.Popen(
            [*inside_node, *command],
            env=os.environ | {"PATH": PATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *command: str) -> str:
        """Run a command in a node and return what it prints."""
        output, errors = self.start(name, *command).communicate(timeout=60 * patience())
        assert not errors
        return output

    def counted(self, switch: str) -> dict[str, Any]:
        """What the lab's own script collects of a switch."""
        assert not self.run(switch, "sh", str(self.lab / "collect.sh"), switch)
        return json.loads((self.lab / "collected" / f"{switch}.json").read_text())

    def address(self, host: str) -> str:
        """The address of a host, as its node has it."""
        addresses = json.loads(self.run(host, "ip", "-json", "-4", "addr", "show", "dev", "eth1"))
        return addresses[0]["addr_info"][0]["local"]

    def send(self, src: str, dst: str) -> int:
        """Send UDP packets from a host to another; return how many arrive."""
        with inside(self.nodes[dst]):
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inside(self.nodes[src]):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        arrived, there = [0], (self.address(dst), 7000)

        def receive() -> None:
            while True:
                try:
                    receiver.recv(100)
                except TimeoutError:
                    return
                arrived[0] += 1

        with receiver, sender:
            receiver.bind(("", 7000))
            with suppress(PermissionError):  # not in a user namespace
                receiver.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 1 << 23)
            receiver.settimeout(5)
            sender.bind(("", 7001))
            thread = threading.Thread(target=receive)
            thread.start()
            for number in range(PACKETS):
                sender.sendto(b"%d" % number, there)
                if number % 50 == 49:
                    time.sleep(0.01)  # as queues are short
            thread.join()
        return arrived[0]


@contextmanager
def up(folder: Path, **given: Any) -> Iterator[Machines]:
    """A lab on two machines, up."""
    request = make_request(None, {"noise": "0", **given})
    with ExitStack() as stack:
        yield Machines(export_lab(request, ",".join(MACHINES), folder / "lab"), stack)


def test_two_switches_on_two_machines_count_what_they_lose(tmp_path: Path) -> None:
    with up(tmp_path, topology="two-switch", faults="tor0->tor1:0.25") as machines:
        arrived = machines.send("h0", "h1")
        first, second = machines.counted("tor0"), machines.counted("tor1")
        assert set(first["dropped"]) == {"2"}  # the port of the fabric link
        lost = first["dropped"]["2"]
        assert arrived + lost == PACKETS
        assert lost / PACKETS == pytest.approx(0.25, abs=0.06)  # six standard deviations
        assert second["dropped"] == {}
        counts = second["registers"][HASHPIPE.stages[0]["counts"]]
        assert list(counts.values()) == [arrived]
