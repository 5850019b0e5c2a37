# SPDX-License-Identifier: Apache-2.0
"""Commands for the network and the machine: bring it up, open a shell on a switch, clean up, warm
up."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scenarios.command.arguments import (
    ConfigOption,
    JsonOption,
    QuietOption,
    ScenarioOption,
    SudoOption,
    WatchOption,
)
from scenarios.command.compilers import need_compiler
from scenarios.command.results import Output
from scenarios.experiment.terminal import line, progress_bar, wide_console
from scenarios.process.namespace import enter
from scenarios.process.signals import raise_on_signals

if TYPE_CHECKING:
    from testbed.network.processes import Cleaned

_P4RUNTIME_SH = """
from IPython.core.shellapp import InteractiveShellApp
from p4runtime_sh.shell import main
InteractiveShellApp.init_path = lambda self: None
main()
"""
"""A program that starts p4runtime-sh, whose package installs no command. It keeps IPython from
adding the current folder to the import path, from which IPython would then import modules."""


def net(
    ctx: typer.Context,
    watch: WatchOption = False,
    script: Annotated[
        Path | None,
        typer.Option(help="Run the prompt's commands of this file, and end. [default: none]"),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(
            help="A P4 program of yours for all switches, as BMv2's JSON with its P4Info beside "
            "it. [default: Canary's]"
        ),
    ] = None,
    bw: Annotated[
        float,
        typer.Option(
            help="Rate of every link in Mb/s. [default: as fast as the machine; 0.1 to 10000]",
            show_default=False,
        ),
    ] = 0,
    sudo: SudoOption = False,
) -> None:
    """Bring the network up, with Mininet's prompt."""
    from scenarios.experiment.settings import SettingsError
    from testbed.network.requirements import no_namespaces, no_packages

    if reason := no_namespaces() or no_packages():
        raise SettingsError(reason)
    from scenarios.live.session import NEEDS_CANARY, Own, session_layout

    layout, own = session_layout(ctx.obj.settings), Own(program, bw)
    own.check(layout)
    if watch and program is not None:
        raise SettingsError(f"WATCH=1 {NEEDS_CANARY}")
    if script is not None and not script.is_file():
        raise SettingsError(f"SCRIPT={script}: there is no such file")
    need_compiler()
    enter(layout.network, sudo, watch, ctx.obj.environment)
    ctx.obj.print_environment()
    raise_on_signals()
    with tempfile.TemporaryDirectory() as logs:
        from scenarios.live.prompt import open_prompt

        open_prompt(layout, Path(logs), watch, script, own)


def export_lab(
    ctx: typer.Context,
    scenario: ScenarioOption = None,
    config: ConfigOption = None,
    machines: Annotated[
        str,
        typer.Option(
            help="IPv4 addresses of the machines that share the fabric, separated by commas. "
            "[default: one machine]",
            show_default=False,
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the lab, absent or empty. [default: <scenario>-lab]"),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a scenario's network as a containerlab lab.

    The lab may be for several machines.
    """
    from scenarios.experiment.settings import SettingsError
    from testbed.network.requirements import no_packages

    if reason := no_packages():
        raise SettingsError(reason)

    from scenarios.command.export_lab import export_lab as write_lab
    from scenarios.experiment.request import make_request

    output = Output(quiet, as_json)
    raise_on_signals()
    need_compiler()
    request = make_request(scenario, ctx.obj.settings, config)
    with output.working():
        ctx.obj.print_environment()
        folder = write_lab(request, machines, out)
    text = line(f"lab: {folder}; its README.md says how to start it")
    files = [each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()]
    output.show(
        folder,
        lambda: {"path": str(folder), "files": sorted(files)},
        lambda: wide_console().print(text, soft_wrap=True),
    )


def doctor(as_json: JsonOption = False) -> None:
    """What this machine can run, and what to install."""
    from scenarios.command.doctor import examine, render_findings

    found = list(examine())
    Output(as_json=as_json).show(
        None,
        lambda: {"findings": [asdict(each) for each in found]},
        lambda: render_findings(found, wide_console()),
    )


def warm_up() -> None:
    """Compile what a run needs, once an installation: `make setup` does it."""
    from scenarios.command.warm_up import warm_up as compile_all

    with progress_bar() as progress:
        compile_all(progress)


def shell(
    switch: Annotated[str, typer.Argument(help="A switch of the running network: agg0_1.")],
    force: Annotated[
        bool, typer.Option(help="Take the switch from its controller, so that you can write to it.")
    ] = False,
) -> None:
    """Open p4runtime-sh on a switch of the running network."""
    from testbed.network.switches import running_switch

    found = running_switch(switch)
    aim = "taken from its controller" if force else "to read from: FORCE=1 takes it for writing"
    print(f"{switch} of {found.network}, {aim}", flush=True)
    print(f"its P4Runtime is at {found.address}, device {found.device}", flush=True)
    # A switch refuses an ID that another client uses, and makes no client with a lower ID primary.
    election = f"2,{time.time_ns()}" if force else f"0,{os.getpid()}"
    arguments = ["--grpc-addr", found.address, "--device-id", str(found.device)]
    arguments += ["--election-id", election]
    os.execv(sys.executable, [sys.executable, "-P", "-c", _P4RUNTIME_SH, *arguments])


def ended_in_words(cleaned: Cleaned) -> str:
    """Return one line that says what was ended: ``ended 20 switches, 16 hosts``."""
    counts = ((cleaned.switches, "switch", "es"), (cleaned.hosts, "host", "s"))
    parts = [f"{n} {kind}{end if n > 1 else ''}" for n, kind, end in counts if n]
    if others := cleaned.others:
        programs = ", ".join(dict.fromkeys(others))
        parts.append(f"{len(others)} other process{'es' if len(others) > 1 else ''} ({programs})")
    return f"ended {', '.join(parts)}" if parts else "nothing was left"


def clean_net(as_json: JsonOption = False) -> None:
    """Remove what a killed run left of its network.

    Nothing else is removed.
    """
    from testbed.network.processes import clean

    cleaned = clean()

    def show() -> None:
        """Print what was ended and what is left alone."""
        print(ended_in_words(cleaned))
        for runner in cleaned.alive:
            print(f"process {runner} still runs a network, which is left alone")

    Output(as_json=as_json).show(None, lambda: asdict(cleaned), show)


def bundle() -> None:
    """Pack the project, its packages and its compiled programs for machines without network."""
    from scenarios.command.bundle import make_bundle

    made = make_bundle(Path.cwd(), lambda step: print(f"  {step}", flush=True))
    print(f"{made.name}, {made.stat().st_size / 1e6:.0f} MB; on a machine like this one:")
    print(f"  tar xf {made.name} && cd canary && make scenario FAULTS=10pct K=4")
