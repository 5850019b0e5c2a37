# SPDX-License-Identifier: Apache-2.0
"""All C of a virtual run compiles for other processors and for macOS, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from canary_softswitch.compiler import build
from canary_softswitch.runtime import program
from scenarios.command.warm_up import c_files
from testbed import dataplane
from testbed.kernels import FLAGS, c_text, has_kernels
from testbed.network import virtual

ROOT = Path(__file__).parents[2]

TARGETS = ("aarch64-linux-gnu", "aarch64-macos", "x86_64-macos")


def sources(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Every text that a virtual run compiles, by name."""
    texts = {
        "virtual": dataplane.c_defines() + build.read_c(Path(virtual.__file__).with_suffix(".c"))
    }

    def load(code: str, *arguments: Any) -> Any:
        texts["switch"] = code
        return build.load_library(code, *arguments)

    monkeypatch.setattr(program, "load_library", load)
    program.Program.load(ROOT / "p4" / "build" / "canary.json")
    for room in ("testbed", "analysis", "scenarios"):
        texts |= {
            "-".join(file.parts[-3:]): c_text(file) for file in c_files(room) if has_kernels(file)
        }
    return texts


@pytest.mark.nightly
@pytest.mark.parametrize("target", TARGETS)
def test_what_a_virtual_run_needs_compiles(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = sources(monkeypatch)
    assert len(texts) > 20 and "switch" in texts
    portable = [flag for flag in FLAGS if not flag.startswith("-Wl,")]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *build.FLAGS, *portable]
    failed = {}
    for name, text in texts.items():
        code = tmp_path / f"{name}.c"
        code.write_text(text)
        done = subprocess.run(
            [*command, "-Wall", "-Wextra", "-o", str(tmp_path / "library"), str(code)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or done.stderr:
            failed[name] = done.stderr
    assert not failed
