# SPDX-License-Identifier: Apache-2.0
"""A command under another kernel: its status comes out, its files do not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BOOT = Path(__file__).with_name("boot")
TOOLS = ("linux.uml", "modprobe")


@pytest.mark.parametrize("there", range(len(TOOLS)))
def test_a_missing_tool_is_named_with_the_command_that_installs_it(
    tmp_path: Path, there: int
) -> None:
    for tool in TOOLS[:there]:
        (tmp_path / tool).touch(0o755)
    bash = shutil.which("bash")
    assert bash
    result = subprocess.run(
        [bash, BOOT, "true"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"boot: no {TOOLS[there]}: apt-get install ")
    assert result.stderr.count("\n") == 1


@pytest.mark.root
@pytest.mark.beside
@pytest.mark.skipif(shutil.which(TOOLS[0]) is None, reason=f"{TOOLS[0]} is not on PATH")
def test_the_kernel_has_netem_and_what_the_command_writes_is_gone_afterwards() -> None:
    netem = "tc qdisc add dev lo root netem loss 10% && tc qdisc show dev lo"
    command = [BOOT, "sh", "-c", f"touch written && {netem}; exit 7"]
    result = subprocess.run(command, cwd=BOOT.parent, capture_output=True, text=True)
    assert result.returncode == 7
    assert "netem" in result.stdout and "loss 10%" in result.stdout
    assert not BOOT.with_name("written").exists()
