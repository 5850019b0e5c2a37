# SPDX-License-Identifier: Apache-2.0
"""``canary doctor``: examines what this machine can run, and what to install for the rest.

For a missing program it prints the same line as a run that needs it.
"""

from __future__ import annotations

import mmap
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from canary_softswitch import SoftSwitchError
from canary_softswitch.compiler.build import cache_dir, compiler, load_library, uses_prebuilt
from scenarios.experiment.estimate import available_bytes, in_gigabytes
from testbed.cores import usable_cores
from testbed.fabric.names import plain
from testbed.faults.kernel_injectors import NetemInjector, NftInjector, in_new_namespace
from testbed.network.requirements import BMV2, IP, IPERF, MNEXEC, P4C, PING, Tool, not_installed
from testbed.rootless import find_program, forbidden

_TALKS = (b"Egress port is {}", b"Processing packet received on port")
"""Texts that BMv2 logs for every packet if its logging macros are compiled in."""

_PRODUCER = re.compile(rb"GNU C\+\+[^\0\n]*")


@dataclass(frozen=True)
class Finding:
    """The result of one check of the machine.

    Attributes:
        name: The name of the checked thing.
        state: ``good``, ``weak`` (it works, but should be improved) or ``missing``.
        says: The version or size; if it is not good, a line that says what to do.
        without: What cannot be done without it.
    """

    name: str
    state: Literal["good", "weak", "missing"]
    says: str
    without: str = ""


def examine() -> list[Finding]:
    """Run all checks and return their results. This takes about a second, as some things must be
    tried out."""
    return [finding for check in _CHECKS for finding in check()]


def render_findings(findings: list[Finding], console: Console) -> None:
    """Print a line for each result, and for a missing thing what cannot be done without it."""
    marks = {"good": ("✓", "green"), "weak": ("!", "yellow"), "missing": ("✗", "red")}
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        mark, style = marks[finding.state]
        text = Text(plain(finding.says), style="" if finding.state == "good" else style)
        if finding.state != "good" and finding.without:
            text.append(f"\nwithout it: no {finding.without}", style="dim default")
        table.add_row(Text(mark, style=style), Text(finding.name), text)
    console.print(table)


# ---- what is looked for ----------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    """Yield the version of Python, the number of cores and the free memory."""
    yield Finding("Python", "good", f"{platform.python_version()}, {sys.prefix}")
    yield Finding("cores", "good", str(usable_cores()))
    yield Finding("memory", "good", f"{in_gigabytes(available_bytes())} free")


_UNCOMPILED = "switch program but that of virtual runs at K=4, 8 and 16"
"""What is not there without a compiler where a wheel holds compiled libraries."""


def _packets() -> Iterator[Finding]:
    """Yield whether the soft switch can be compiled and loaded."""
    without = "run or analyze anything"
    try:
        command = compiler()
        yield Finding("C compiler", "good", _version(*command, "--version"))
    except SoftSwitchError as error:
        if uses_prebuilt():
            yield Finding("C compiler", "weak", str(error), _UNCOMPILED)
        else:
            yield Finding("C compiler", "missing", str(error), without)
        return
    try:
        load_library("int canary_doctor(void) { return 1; }\n", {})
        yield Finding("cache", "good", str(cache_dir()))
    except SoftSwitchError as error:
        yield Finding("cache", "missing", str(error), without)


def _real_packets() -> Iterator[Finding]:
    """Yield whether networks of real packets can be brought up."""
    reason = forbidden()
    state: Literal["good", "missing"] = "missing" if reason else "good"
    yield Finding("namespaces", state, reason or "yes, without root", "run on real packets")
    yield _tool("Mininet", MNEXEC)
    yield _tool("iproute2", IP)
    yield _tool("iperf3", IPERF)
    yield _tool("ping", PING)


def _bmv2() -> Iterator[Finding]:
    """Yield whether BMv2 and p4c are installed, and whether BMv2 is slow."""
    found = _tool("BMv2", BMV2)
    path = find_program(BMV2.command)
    if found.state == "good" and path is not None and (reason := bmv2_is_slow(Path(path))):
        found = Finding("BMv2", "weak", f"{found.says}: {reason}")
    yield found
    yield _tool("p4c", P4C)


def _kernel() -> Iterator[Finding]:
    """Yield whether the kernel has veth, netem and nftables, as tried in a new namespace."""
    tried: list[tuple[str, Callable[[], str], str]] = [
        ("veth", _no_veth, "run on real packets"),
        ("sch_netem", NetemInjector.available, ""),
        ("nft", NftInjector.available, ""),
    ]
    for name, complaint, without in tried:
        if reason := forbidden():
            yield Finding(name, "weak", f"cannot be tried: {reason}")
        else:
            problem = complaint()
            yield Finding(name, "missing" if problem else "good", problem or "works", without)


def _backends() -> Iterator[Finding]:
    """Yield the backends that this machine can run."""
    lacking = {
        "virtual": "",
        "flow": "",
        "softswitch": forbidden() or not_installed("softswitch"),
        "bmv2": forbidden() or not_installed("bmv2"),
    }
    try:
        if not uses_prebuilt():
            compiler()
    except SoftSwitchError as error:
        lacking = dict.fromkeys(lacking, str(error))
    here = [name for name, reason in lacking.items() if not reason]
    yield Finding("BACKEND", "good" if here else "missing", ", ".join(here) or "none", "run")


_CHECKS = (_machine, _packets, _real_packets, _bmv2, _kernel, _backends)


def _no_veth() -> str:
    """Return why the kernel cannot make veth interfaces, or "" if it can."""
    if IP.lacking:
        return IP.lacking
    complaint = in_new_namespace(["ip", "link", "add", "veth0", "type", "veth", "peer", "veth1"])
    return f"the kernel has no veth ({complaint}): modprobe veth" if complaint else ""


def _tool(name: str, tool: Tool) -> Finding:
    """Return whether a program is installed and runs, with its version."""
    if tool.lacking:
        return Finding(name, "missing", tool.lacking, tool.without)
    path = find_program(tool.command) or tool.command
    return Finding(name, "good", _version(path, tool.asks))


def _version(command: str, *asks: str) -> str:
    """Return the first line with a digit that a program prints when asked for its version."""
    try:
        done = subprocess.run(
            [command, *asks], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return f"{command} does not run"
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    found = next((line for line in lines if re.search(r"\d", line)), command)
    return found if len(found) < 60 else found[:57] + "..."


def bmv2_is_slow(program: Path) -> str:
    """Return why a BMv2 is slower than it could be, or "" if nothing shows that it is.

    BMv2's documentation (`performance.md`) asks for ``-O3`` and no logging macros. The macros leave
    their texts in the program or its libraries; the debug information has the compiler's options.
    """
    reasons = set()
    for path in (program, *_libraries(program)):
        try:
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                if any(data.find(text) >= 0 for text in _TALKS):
                    reasons.add("it logs every packet")
                if any(b" -O" not in how or b" -O0" in how for how in _PRODUCER.findall(data)):
                    reasons.add("it was compiled without optimization")
        except (OSError, ValueError):
            continue
    if not reasons:
        return ""
    return (
        f"{' and '.join(sorted(reasons))}, which makes it several times slower: build it with "
        "./configure --disable-logging-macros 'CXXFLAGS=-O3'"
    )


def _libraries(program: Path) -> list[Path]:
    """Return the paths of BMv2's own libraries that a program loads."""
    try:
        done = subprocess.run(
            ["ldd", program], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    found = re.findall(r"=> (/\S*/lib(?:bm|simple|runtime|pi)\S*)", done.stdout)
    return [Path(path) for path in found]
