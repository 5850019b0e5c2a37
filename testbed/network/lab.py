# SPDX-License-Identifier: Apache-2.0
"""A fabric as the files of a containerlab lab, whose nodes may be on several machines.

`files_of` makes the files from a fabric and from what its switches get; nothing is started here.
A switch or host of the lab runs a script of its own (``switches/NAME.sh``, ``hosts/NAME.sh``) with
the same commands as under Mininet (`testbed.network.nodes`, `testbed.network.switches`). Links
between machines are VXLAN tunnels, one each, between the nodes themselves.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from testbed.arrays import IntArray
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.kernel_injectors import Command
from testbed.network.network import switch_seed
from testbed.network.nodes import cables, host_commands, mac_text
from testbed.network.switches import BMV2, QUEUE_PACKETS, Backend, arguments

IMAGE = "canary-lab"
VXLAN_PORT = 14789
"""The UDP port of all tunnels: containerlab's own default."""
_HERE = 'cd "$(dirname "$0")/.."'
_LAB_SWITCH = "python -P -m testbed.network.lab_switch"
_OFFLOADS = "rx off tx off sg off tso off gso off gro off"


class LabError(UserError):
    """The fabric cannot be made a lab on these machines. The message is one line."""


@dataclass(frozen=True)
class Lab:
    """A fabric and what its switches get.

    Attributes:
        name: The name of the lab, which containerlab puts into those of the containers.
        fabric: The fabric.
        backend: The kind of its switches.
        seed: Seeds the random numbers of soft switches; BMv2 takes no seed.
        entries: The entries of each switch (`testbed.network.lab_switch`), in the fabric's
            order.
        commands: By directed link, the command that injects its faults where it begins.
        machines: The addresses of the machines, as they reach each other; none for one machine.
    """

    name: str
    fabric: PacketFabric
    backend: Backend
    seed: int
    entries: Sequence[str]
    commands: Mapping[int, Command]
    machines: Sequence[str] = ()

    @property
    def image_options(self) -> str:
        """Return the options with which its image is built: p4lang's packages of BMv2 are for
        Ubuntu."""
        ubuntu = "--build-arg BASE=ubuntu:24.04 --build-arg NEED_BMV2=--need-bmv2 "
        return ubuntu if self.backend == "bmv2" else ""


def interface(port: int) -> str:
    """Return the name of a node's interface by port number; a host's port is 0.

    containerlab keeps ``eth0`` for itself, so a host has ``eth1``.
    """
    return f"eth{port or 1}"


def machine_of(fabric: PacketFabric, machines: int) -> IntArray:
    """Return the number of the machine that each switch is on, int32[n_switches].

    Whole pods stay together, so that only links of the highest tier are tunnels. The switches of
    that tier are shared out evenly. Two switches without pods are on a machine each.

    Raises:
        LabError: There are more machines than pods.
    """
    pods = fabric.pod if fabric.pod.max() > 0 else fabric.tier
    n_pods = int(pods.max()) + 1
    if machines > n_pods:
        raise LabError(f"{fabric.title} has {n_pods} pods, which is too few for {machines} hosts")
    top = np.flatnonzero(pods < 0)
    unit, units = pods.copy(), np.full(fabric.n_switches, n_pods)
    unit[top], units[top] = np.arange(len(top)), len(top)
    return (unit * machines // units).astype(np.int32)


def files_of(lab: Lab) -> Iterator[tuple[Path, str]]:
    """Yield the path, inside the lab's folder, and the text of each file but the program's.

    Raises:
        LabError: See `machine_of`.
    """
    fabric = lab.fabric
    for number, topology in enumerate(_topologies(lab), 1):
        file = f"topology{f'-{number}' if lab.machines else ''}.clab.yml"
        yield Path(file), yaml.safe_dump(topology, sort_keys=False)
    for switch, name in enumerate(fabric.switch_names):
        yield Path("switches", f"{name}.txtpb"), lab.entries[switch]
        yield Path("switches", f"{name}.sh"), _switch_script(lab, switch)
    for host, name in enumerate(fabric.host_names):
        yield Path("hosts", f"{name}.sh"), _host_script(lab, host)
    yield (
        Path("collect.sh"),
        _script(
            "Run in a switch: writes what it counted to collected/NAME.json.",
            'cd "$(dirname "$0")"',
            "name=${1:-$(hostname)}",
            "mkdir -p collected",
            f'{_LAB_SWITCH} read "$name" >"collected/$name.json"',
        ),
    )


def _topologies(lab: Lab) -> list[dict[str, Any]]:
    """Return containerlab's topology of each machine: its nodes and its links, as YAML has them."""
    fabric, number = lab.fabric, max(1, len(lab.machines))
    where = machine_of(fabric, number)
    on = dict(zip(fabric.switch_names, where.tolist(), strict=True))
    on |= dict(zip(fabric.host_names, where[fabric.host_tor].tolist(), strict=True))
    nodes: list[dict[str, Any]] = [{} for _ in range(number)]
    links: list[list[dict[str, Any]]] = [[] for _ in range(number)]
    for kind, names in (("switch", fabric.switch_names), ("host", fabric.host_names)):
        folder = "switches" if kind == "switch" else "hosts"
        for name in names:
            nodes[on[name]][name] = {
                "kind": "linux",
                "labels": {"canary": kind},
                "exec": [f"sh /lab/{folder}/{name}.sh"],
            }
    for vni, (*ends, mtu) in enumerate(cables(fabric), 1):
        points = [
            {"node": name, "interface": interface(port)} | ({"mac": mac_text(mac)} if mac else {})
            for name, port, mac in ends
        ]
        here, there = (on[name] for name, _, _ in ends)
        if here == there:
            links[here].append({"type": "veth", "endpoints": points, "mtu": mtu})
            continue
        for point, own, far in ((points[0], here, there), (points[1], there, here)):
            tunnel = {"remote": lab.machines[far], "vni": vni, "dst-port": VXLAN_PORT, "mtu": mtu}
            links[own].append({"type": "vxlan", "endpoint": point, **tunnel})
    node = {"image": IMAGE, "network-mode": "none", "binds": [".:/lab"]}
    return [
        {
            "name": lab.name,
            "topology": {"kinds": {"linux": node}, "nodes": nodes[n], "links": links[n]},
        }
        for n in range(number)
    ]


def _switch_script(lab: Lab, switch: int) -> str:
    """Return the script that starts a switch, loads its entries and injects its links' faults."""
    fabric, name = lab.fabric, lab.fabric.switch_names[switch]
    to_switches = fabric.link_src_port[fabric.link_src == switch].tolist()
    to_hosts = fabric.host_port[fabric.host_tor == switch].tolist()
    names = {port: interface(port) for port in sorted([*to_hosts, *to_switches])}
    words = arguments(switch + 1, names, Path("run", f"{name}.grpc"))
    if lab.backend == "bmv2":
        words = [*BMV2, "--notifications-addr", f"ipc://run/{name}.events", *words]
    else:
        words = ["canary-switch", "--seed", str(switch_seed(lab.seed, switch)), *words]
    injected = [
        shlex.join(command) + (f" <<'END'\n{text}END" if text else "")
        for link, (command, text) in sorted(lab.commands.items())
        if fabric.link_src[link] == switch
    ]
    queue = f" {QUEUE_PACKETS}" if lab.backend == "bmv2" else ""
    return _script(
        f"Starts the switch {name}, loads its program and its entries, and injects its faults.",
        _HERE,
        *_up(names.values(), lab.backend),
        "mkdir -p run",
        f"rm -f run/{name}.grpc",  # of an earlier time
        f"{shlex.join(words)} </dev/null >run/{name}.log 2>&1 &",
        f"{_LAB_SWITCH} load {name}{queue}",
        *injected,
    )


def _host_script(lab: Lab, host: int) -> str:
    """Return the script that gives a host its address and routes."""
    own = interface(0)
    return _script(
        f"Gives the host {lab.fabric.host_names[host]} its address and routes.",
        *_up([own], lab.backend),
        "echo 0 >/proc/sys/net/ipv4/tcp_early_retrans",
        "echo 12 >/proc/sys/net/ipv4/tcp_syn_retries",
        *(f"ip {command}" for command in host_commands(lab.fabric, host, own)),
    )


def _up(names: Iterable[str], backend: Backend) -> list[str]:
    """Return the commands that set interfaces up, without IPv6 and, for BMv2, offloads."""
    commands = []
    for which in ("all", "default"):
        setting = f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6"
        commands.append(f"test ! -e {setting} || echo 1 >{setting}")
    for name in names:
        if backend == "bmv2":  # which forwards unfinished checksums as they are
            commands.append(f"ethtool -K {name} {_OFFLOADS} >/dev/null 2>&1 || true")
        commands.append(f"ip link set {name} up")
    return commands


def _script(what: str, *lines: str) -> str:
    return "\n".join(["#!/bin/sh", f"# {what}", "set -e", *lines, ""])
