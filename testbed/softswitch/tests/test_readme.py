# SPDX-License-Identifier: Apache-2.0
"""What the soft switch's page and its README say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import canary_softswitch
from canary_softswitch.process.command_line import parse
from testbed.softswitch.tests.server.client import PROGRAMS, ROOT
from tests.programs import needs

PAGE = (ROOT / "docs" / "reference" / "soft_switch.md").read_text()
README = (ROOT / "testbed" / "softswitch" / "README.md").read_text()
PACKET = bytes(12) + bytes.fromhex("08004500001c00000000401166cf0a0000010a000002") + bytes(8)


def test_the_example_forwards_a_packet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(example, {})
    assert capsys.readouterr().out.startswith("3 00 aa 00 00 00 01 ")


def test_the_readme_forwards_a_packet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(PROGRAMS)
    exec(example, {"packet": PACKET})
    assert capsys.readouterr().out.startswith("3 00 aa 00 00 00 01 ")


def test_every_room_is_in_the_readme() -> None:
    rooms = {path.stem for path in Path(canary_softswitch.__file__).parent.iterdir()}
    for room in rooms - {"__init__", "__pycache__", "py"}:
        assert f"`{room}`" in README


@needs("simple_switch_grpc")
def test_every_option_of_bmv2_is_there_and_in_the_table() -> None:
    run = subprocess.run(
        ["simple_switch_grpc", "--help"], capture_output=True, text=True, check=False
    )
    general, _, target = run.stdout.partition("Target options:")
    value = {"--interface": "1@x", "--log-level": "info", "--grpc-server-addr": "127.0.0.1:1"}
    ends = ("--version", "--json-version", "--no-p4")
    tried = 0
    for text, before in ((general, []), (target, ["--"])):
        for name, argument in re.findall(r"^  (?:-\w \[ )?(--[\w-]+)(?: \])?( arg)?", text, re.M):
            if name == "--help":
                continue
            assert name in PAGE
            if name in ends:
                continue
            words = [*before, name, *([value.get(name, "1")] if argument else [])]
            if name == "--grpc-server-ssl":
                words += ["--grpc-server-cert", "x", "--grpc-server-key", "x"]
            parse(["--no-p4", *words])  # ends the process where it is not known
            tried += 1
    assert tried > 25
