# SPDX-License-Identifier: Apache-2.0
"""The commands that the pages of docs/do teach run as they are printed, block for block.

Some are made smaller, so that a night is enough (`SMALLER`), and some need what a test machine does
not have (`NEEDS`); everything else runs word for word, in a folder of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from testbed.rootless import forbidden
from tests.analysis.importers import world
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
DO = ROOT / "docs" / "do"
BIN = ROOT / ".venv" / "bin"

SMALLER = (
    (r"\bSEEDS=1-\d+", "SEEDS=1-2"),
    (r"\bK=48\b", "K=12"),
    (r"\bK=32\b", "K=12"),
    (r"^make scenario K=16\b", "make scenario K=16 EPOCHS=1"),
    (r"\b(FIG=\S+)", r"\1 DRAWS=2"),
)
"""Parts of commands, and what a test runs in their place."""

NEEDS: dict[str, str] = {
    r"\bcontainerlab\b": "containerlab",
    r"\bvagrant up\b": "vagrant",
    r"^make -C p4": "p4c",
    r"BACKEND=bmv2": "simple_switch_grpc",
    r"BACKEND=softswitch|SUDO=1|^make net|^make shell|clean-net": "mn",
}
"""The program that a command needs, by a pattern of the command."""

LEFT_OUT: dict[str, str] = {
    r"^make calibrate$": "it takes all methods; the next command is the same for two",
    r"^make test$": "it would run itself",
    r"docker build": "it builds an image of a clone",
    r"vagrant up": "it installs a virtual machine",
}
"""Why a command is not run, by a pattern of it."""


def blocks(page: Path) -> list[list[str]]:
    """The commands of each block of shell of a page."""
    found = re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    lines = [text.replace("\\\n", " ").splitlines() for text in found]
    return [[re.sub(r"\s+#.*$", "", line).strip() for line in block if line] for block in lines]


BLOCKS = [
    pytest.param(page, number, id=f"{page.stem}-{number}")
    for page in sorted(DO.glob("*.md"))
    for number in range(len(blocks(page)))
]


def why_not(command: str) -> str:
    """Why a command cannot run here; "" if it can."""
    for pattern, why in LEFT_OUT.items():
        if re.search(pattern, command):
            return why
    for pattern, program in NEEDS.items():
        if re.search(pattern, command):
            if shutil.which(program) is None:
                return f"there is no {program}"
            if reason := forbidden():
                return reason
    return ""


def to_run(command: str) -> str:
    """What is run for a command of a page."""
    command = command.removeprefix("sudo ")
    for pattern, smaller in SMALLER:
        command = re.sub(pattern, smaller, command)
    return command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like a clone of the project, with what the pages take for granted."""
    (tmp_path / "Makefile").symlink_to(ROOT / "Makefile")
    soft_switch = "testbed/softswitch/pyproject.toml"
    (tmp_path / soft_switch).parent.mkdir(parents=True)
    locks = [path.name for path in ROOT.glob("requirements*.lock")]
    for name in ("pyproject.toml", soft_switch, *locks):
        (tmp_path / name).touch()  # older than .venv, so that nothing is set up
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "runs").mkdir()
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    [method] = re.findall(
        r"^```python\n(import numpy.*?class WorstSegments.*?)^```$",
        (DO / "method.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    (tmp_path / "worst.py").write_text(method)
    packets = []
    for number in range(2000):
        ends = IP(src=f"1.2.{number % 40}.4", dst=f"5.6.{number % 23}.8")
        packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ends / TCP(sport=number)
        packet.time = 1000 + number * 0.002
        packets.append(packet)
    wrpcap(str(tmp_path / "mine.pcap.gz"), packets, gz=True)
    (tmp_path / "dc.clab.yml").write_text(world.clab())
    (tmp_path / "pings.csv").write_text(world.pingmesh())
    return tmp_path


def environment(command: str) -> dict[str, str]:
    own = {name: v for name, v in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    if re.match(r"make (scenario|compare) (?!.*\b(BACKEND|SUDO|CONFIG)=)", f"{command} "):
        own["CANARY_BACKEND"] = "virtual"  # as for a user who is not root
    return own | {"N": "1"}


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-e", "-c", command]
    if command == "make ui":
        with started(words, folder, "ui: ") as printed:
            page = urllib.request.urlopen(printed.split()[1], timeout=PATIENCE_S).read()
        return subprocess.CompletedProcess(words, b"<h2>Runs</h2>" not in page, printed, "")
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(command),
        input="exit\n",
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def started(words: Sequence[str], folder: Path, sign: str) -> Iterator[str]:
    """What a command that goes on prints when it is ready. Then it is told to exit, by the word and
    by Ctrl-C."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment(""),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    messages: list[str] = []
    while not messages or sign not in messages[-1]:
        messages.append(process.stdout.readline())
        assert messages[-1], "".join(messages)
    try:
        yield messages[-1]
    finally:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            process.stdin.write("exit\n")
            process.stdin.close()
        if sign == "ui: ":
            os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
        process.wait(PATIENCE_S)


@pytest.mark.nightly
@pytest.mark.skipif(not (BIN / "canary").exists(), reason="there is no .venv")
@pytest.mark.parametrize(("page", "number"), BLOCKS)
def test_the_commands_of_a_block_run(page: Path, number: int, folder: Path) -> None:
    commands = blocks(page)[number]
    skipped = {command: why for command in commands if (why := why_not(to_run(command)))}
    if any("RUN=runs/one" in command for command in commands):
        run("make scenario BACKEND=flow EPOCHS=1 RUN=runs/one", folder)
    with ExitStack() as other_terminal:
        if any("make shell" in command for command in commands) and not skipped:
            net = ("make", "net", "K=4", "BACKEND=softswitch")
            other_terminal.enter_context(started(net, folder, " is up: "))
        for command in commands:
            if command not in skipped:
                done = run(to_run(command), folder)
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
                assert done.stdout.strip(), f"{command} prints nothing"
    if skipped:
        pytest.skip("; ".join(f"{command}: {why}" for command, why in skipped.items()))


def test_each_reason_is_of_a_command() -> None:
    every = [line for page in DO.glob("*.md") for block in blocks(page) for line in block]
    for pattern in (*LEFT_OUT, *NEEDS, *(pattern for pattern, _ in SMALLER)):
        assert any(re.search(pattern, line.removeprefix("sudo ")) for line in every), pattern


# ---- what the pages say that a command prints ----------------------------------------------------


def test_a_run_prints_its_faulty_links_and_all_of_them_when_asked(folder: Path) -> None:
    """docs/do/break_a_link.md and class.md say so."""
    assert "`make scenario` prints the faulty links" in (DO / "break_a_link.md").read_text()
    assert "VERBOSE=1` prints every faulty link" in (DO / "class.md").read_text()
    words = "SCENARIO=faulty_links BACKEND=flow EPOCHS=1 FAULTS=10pct METHODS=canary"
    made = run(f"make scenario {words} RUN=runs/mine", folder)
    assert made.returncode == 0, made.stderr
    from canary import load

    rates = load(folder / "runs" / "mine").summary["rates"]
    shown = [link for link in rates if f"\n{link} " in made.stdout]
    assert sorted(rates[link] for link in shown) == sorted(rates.values())[:4]
    everything = run("make show RUN=runs/mine VERBOSE=1", folder).stdout
    for link, rate in rates.items():
        assert re.search(rf"^{re.escape(link)} +{100 * rate:.1f} % ", everything, re.MULTILINE)
