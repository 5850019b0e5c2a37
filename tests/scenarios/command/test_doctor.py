# SPDX-License-Identifier: Apache-2.0
"""``canary doctor``: it finds what is missing, and says it as a run does."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from canary_softswitch import SoftSwitchError
from canary_softswitch.compiler import build
from canary_softswitch.compiler.build import compiler
from scenarios.command.doctor import Finding, bmv2_is_slow, examine, render_findings
from scenarios.experiment.estimate import available_bytes
from testbed import rootless
from testbed.network.network import NetworkError
from testbed.network.requirements import not_installed
from testbed.rootless import forbidden
from testbed.traffic.iperf import need_iperf
from tests.scenarios.conftest import Canary


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rootless, "SYSTEM_FOLDERS", "")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_missing_is_said_as_a_run_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {finding.name: finding for finding in examine()}
    with pytest.raises(NetworkError) as no_iperf:
        need_iperf()
    with pytest.raises(SoftSwitchError) as no_compiler:
        compiler()
    expected = {
        "iperf3": str(no_iperf.value),
        "C compiler": str(no_compiler.value),
        "Mininet": not_installed(),
    }
    assert {name: found[name].says for name in expected} == expected
    for name in (*expected, "ping", "iproute2", "BMv2", "p4c"):
        assert found[name].state == "missing" and found[name].without
        assert "install" in found[name].says or "provision.sh" in found[name].says
    assert "modprobe" not in found["veth"].says  # nothing could ask the kernel
    assert found["BACKEND"].says == "none"  # the flow network has kernels, too


@pytest.mark.usefixtures("nothing_installed")
def test_a_compiler_is_not_needed_where_a_wheel_holds_what_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    found = {finding.name: finding for finding in examine()}
    assert found["C compiler"].state == "weak" and "K=4, 8 and 16" in found["C compiler"].without
    assert found["BACKEND"].says == "virtual, flow"


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_program_that_does_not_run_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = "error while loading shared libraries: libbm.so.0"
    program(tmp_path, "simple_switch_grpc", f"echo 'simple_switch_grpc: {loader}' >&2; exit 127")
    program(tmp_path, "p4c", "echo 'p4c 1.2.5'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = {finding.name: finding for finding in examine()}
    assert found["BMv2"].state == "missing"
    assert "does not run" in found["BMv2"].says and loader in found["BMv2"].says
    assert "bmv2" not in found["BACKEND"].says
    assert (found["p4c"].state, found["p4c"].says) == ("good", "p4c 1.2.5")


def test_programs_of_system_folders_are_found_with_a_users_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian has tc and nft in /usr/sbin, which is not on an ordinary user's PATH."""
    program(tmp_path, "mnexec", "echo 2.3.0")
    monkeypatch.setattr(rootless, "SYSTEM_FOLDERS", f":{tmp_path}")
    monkeypatch.setenv("PATH", "/nowhere")
    found = {finding.name: finding for finding in examine()}
    assert (found["Mininet"].state, found["Mininet"].says) == ("good", "2.3.0")
    assert os.environ["PATH"] == "/nowhere"


def test_what_is_there_is_said(canary: Canary) -> None:
    result = canary("doctor")
    assert result.code == 0 and not result.err
    lines = [line.split() for line in result.out.splitlines()]
    there = {line[1] for line in lines if line[0] == "✓"}
    assert {"Python", "cores", "memory", "C", "cache", "BACKEND"} <= there
    namespaces = next(line for line in lines if line[1:2] == ["namespaces"])
    assert namespaces[0] == ("✗" if forbidden() else "✓")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_the_terminal(width: int) -> None:
    long = "it is not on the PATH: " + "apt install something " * 8
    findings = [
        Finding("a tool", "missing", long, "[bold]runs[/bold]"),
        Finding("b", "good", "1.0"),
    ]
    text = io.StringIO()
    render_findings(findings, Console(file=text, width=width))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(long.split()) in " ".join(text.getvalue().replace("✗", "").split())
    assert "without it: no [bold]runs[/bold]" in text.getvalue(), "no markup"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0GNU C++17 12.2.0 -g -O2 -std=c++17\0", []),
        (b"no debug information\0", []),
        (b"\0Egress port is {}\0", ["logs every packet"]),
        (b"\0GNU C++17 12.2.0 -g -O0\0", ["without optimization"]),
        (b"\0GNU C++17 12.2.0 -g\0Egress port is {}\0", ["logs every packet", "optimization"]),
    ],
)
def test_a_bmv2_that_was_not_built_for_speed(
    tmp_path: Path, content: bytes, words: list[str]
) -> None:
    program = tmp_path / "simple_switch_grpc"
    program.write_bytes(b"\x7fELF" + content)
    reason = bmv2_is_slow(program)
    assert bool(reason) == bool(words)
    assert all(
        word in reason for word in [*words, *(["--disable-logging-macros"] if words else [])]
    )


def test_memory_of_a_container(tmp_path: Path) -> None:
    meminfo, group = tmp_path / "meminfo", tmp_path / "group"
    meminfo.write_text("MemTotal: 8000 kB\nMemAvailable: 4000 kB\nSwapFree: 1000 kB\n")
    assert available_bytes(meminfo, group) == 4000 * 1024
    group.mkdir()
    for name, text in {"max": "3000000", "current": "2500000"}.items():
        (group / f"memory.{name}").write_text(text + "\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 1000000\n")
    assert available_bytes(meminfo, group) == 1_500_000
    (group / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, group) == 4000 * 1024
