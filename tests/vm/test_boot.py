# SPDX-License-Identifier: Apache-2.0
"""The virtual machine's harness says in one line what it lacks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BOOT = Path(__file__).with_name("boot")
TOOLS = ("qemu-system-x86_64", "busybox", "cpio", "depmod")


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
