# SPDX-License-Identifier: Apache-2.0
"""Writes the network of a scenario as a lab for containerlab, on one machine or on several."""

from __future__ import annotations

import ipaddress
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from scenarios.experiment.inputs import Layout, layout_of
from scenarios.experiment.request import Request
from scenarios.experiment.settings import Settings, SettingsError
from testbed.control.forwarding import install_forwarding, needed_entries
from testbed.dataplane.adapted import adapted_program
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.pathbf import bloom_mask, switch_ids
from testbed.faults.injector import FaultInjector
from testbed.faults.kernel_injectors import Command, NetemInjector, NftInjector
from testbed.network.kinds import need_real
from testbed.network.lab import IMAGE, Lab, LabError, files_of, interface
from testbed.network.lab_switch import WrittenSwitch
from testbed.network.switches import Backend
from testbed.record.outputs import need_folder

HAS_EFFECT = {
    *("k", "topology", "tier0", "hosts", "faults", "noise", "injector", "seed", "monitors"),
    "icmp_per_s",
    *("backend", "epochs", "epoch_ms"),  # the last two bound schedules, which are refused
}
"""The settings that a lab depends on; what hosts send and when meters are read are none."""


def export_lab(request: Request, addresses: str, out: Path | None) -> Path:
    """Write the network of a request as a lab, and return the folder.

    Args:
        request: The scenario and its settings.
        addresses: The addresses of the machines, separated by commas; "" for one machine.
        out: The folder, by default ``<scenario>-lab``: absent, or empty.

    Raises:
        SettingsError: A setting has no effect on a lab, or asks for what a lab does not have.
        FolderError: The folder exists and is not empty.
        LabError: The folder cannot be written, or the machines do not fit.
    """
    name = re.sub(r"[^a-zA-Z0-9]+", "-", Path(request.name).stem).strip("-") or "canary"
    folder = out or Path(f"{name}-lab")
    need_folder(folder, option="OUT")
    if not folder.absolute().parent.is_dir():
        raise LabError(f"OUT={folder}: there is no folder {folder.parent}: make it")
    settings = _settings(request)
    machines = _addresses(addresses)
    layout = layout_of(settings, request.scenario, request.name)
    if any(fault.schedule for fault in layout.plan.faults):
        raise SettingsError("a lab has no clock for faults with a schedule: choose others")
    made = folder.with_name(f"{folder.name}.partial")
    try:
        made.mkdir()
    except OSError as error:
        raise LabError(f"cannot write {made}: {error.strerror}") from None
    try:
        _write(made, name, layout, machines)
        made.rename(folder)  # over an empty one, too
    except BaseException:
        shutil.rmtree(made)
        raise
    return folder


def _settings(request: Request) -> Settings:
    """Return the settings of the lab; raise SettingsError for one that it cannot have."""
    network = need_real(request.backend("softswitch"), "switches for a lab")
    for option in request.given:
        if option not in HAS_EFFECT:
            raise SettingsError(f"{option.upper()} has no effect on a lab: leave it out")
    settings = request.settings(network.name)
    if settings.events.strip().lower() != "none":
        raise SettingsError("EVENTS need a controller, which a lab has not: leave them out")
    return settings


def _addresses(addresses: str) -> list[str]:
    """Return the addresses of the machines, as texts."""
    words = [word.strip() for word in addresses.split(",")] if addresses else []
    try:
        found = [str(ipaddress.IPv4Address(word)) for word in words]
    except ValueError:
        raise LabError(
            f"MACHINES={addresses}: give IPv4 addresses, as 192.0.2.1,192.0.2.2"
        ) from None
    if len(set(found)) < len(found) or len(found) == 1:
        raise LabError(
            f"MACHINES={addresses}: give two different addresses or more, or leave it out"
        )
    return found


def _write(folder: Path, name: str, layout: Layout, machines: list[str]) -> None:
    """Write all files of the lab into an empty folder."""
    fabric, seed = layout.fabric, layout.seed
    assert isinstance(fabric, PacketFabric)  # as its network sends packets
    segments = fabric.segments(layout.monitors, seed)
    (folder / "p4").mkdir()
    entries = needed_entries(fabric, segments)
    program = adapted_program(folder / "p4", layout.limits.icmp, entries)
    for file in program:
        if file.parent != folder / "p4":
            shutil.copyfile(file, folder / "p4" / file.name)
    switches = [WrittenSwitch(program.p4info, n + 1) for n in range(fabric.n_switches)]
    masks = bloom_mask(switch_ids(fabric, segments, seed)).tolist()
    monitors = set(segments.downstream.tolist())
    for number, switch in enumerate(switches):
        install_forwarding(fabric, number, switch, masks[number], number in monitors)
    commands = _inject(layout, fabric, switches)
    written = [switch.text for switch in switches]
    backend = cast(Backend, layout.network.name)
    lab = Lab(name, fabric, backend, seed, written, commands, machines)
    texts = [*files_of(lab), (Path("faults.yaml"), layout.plan.to_yaml(fabric))]
    texts.append((Path("README.md"), _readme(lab, layout.config)))
    for path, text in texts:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)


def _inject(
    layout: Layout, fabric: PacketFabric, switches: list[WrittenSwitch]
) -> Mapping[int, Command]:
    """Write the faults as entries of the switches; or return them as commands, by link."""
    injector, plan, noise = layout.injector, layout.plan, layout.noise
    if injector in ("auto", "p4"):
        FaultInjector(fabric, switches, plan, noise).start()
        return {}
    kind = {"netem": NetemInjector, "nft": NftInjector}[injector]
    if plan.whole(fabric) is not fabric:
        raise SettingsError(
            f"INJECTOR={injector} breaks no links of hosts in a lab: use INJECTOR=p4"
        )

    def egress(link: int) -> tuple[int, str]:
        """Return where a link begins: 0 for the process id, and the name of the interface."""
        return 0, interface(int(fabric.link_src_port[link]))

    return kind(fabric, egress, plan, noise).commands()


def _readme(lab: Lab, config: Mapping[str, Any]) -> str:
    """Return the text about a lab for who brings it up."""
    fabric, several = lab.fabric, len(lab.machines) > 1
    topology = "topology-$N.clab.yml" if several else "topology.clab.yml"
    dockerfile, args = "vagrant/Dockerfile", lab.image_options
    where = "".join(
        f"- `topology-{n}.clab.yml` on {address}\n" for n, address in enumerate(lab.machines, 1)
    )
    intro = "Copy this folder to each machine; N is its number:\n\n" + where if several else ""
    options = ", ".join(
        f"{option.upper()}={value}" for option, value in config.items() if option in HAS_EFFECT
    )
    return f"""# {lab.name}: {fabric.title} as a lab for containerlab

{fabric.n_switches} switches ({lab.backend}), {fabric.n_hosts} hosts, {fabric.n_links // 2} links.
Made by `canary export-lab` with {options}.

{intro}
```sh
git -C canary archive HEAD | docker build -t {IMAGE} {args}-f {dockerfile} -  # the project's folder
sudo containerlab deploy -t {topology}
sudo containerlab exec -t {topology} --label canary=switch --cmd "sh /lab/collect.sh"
```

The last writes what each switch counted to `collected/`. `faults.yaml` holds the links that lose
packets. The page "Larger than one machine" of the documentation says more.
"""
