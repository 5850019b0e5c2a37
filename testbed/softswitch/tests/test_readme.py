# SPDX-License-Identifier: Apache-2.0
"""What the soft switch's page says."""

from __future__ import annotations

import re
import subprocess

import pytest

from canary_softswitch.process.command_line import parse
from testbed.softswitch.tests.server.client import ROOT
from tests.programs import needs

README = (ROOT / "docs" / "reference" / "soft_switch.md").read_text()


def test_the_example_forwards_a_packet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(example, {})
    assert capsys.readouterr().out.startswith("3 00 aa 00 00 00 01 ")


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
            assert name in README
            if name in ends:
                continue
            words = [*before, name, *([value.get(name, "1")] if argument else [])]
            if name == "--grpc-server-ssl":
                words += ["--grpc-server-cert", "x", "--grpc-server-key", "x"]
            parse(["--no-p4", *words])  # ends the process where it is not known
            tried += 1
    assert tried > 25
