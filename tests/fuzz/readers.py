# SPDX-License-Identifier: Apache-2.0
"""Damaged files into the readers: read rightly, or refused in one line of our own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from analysis.methods.registry import find_methods
from analysis.telemetry.reading import read_observations
from canary_softswitch.device import config
from canary_softswitch.device.messages import P4Error
from canary_softswitch.errors import InvalidProgram
from scenarios.command.localize import export
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from testbed.record.fabric_file import read_fabric
from testbed.softswitch.tests.mutate import PROGRAMS
from testbed.traffic.capture import CaptureError
from tests.scenarios import test_hostile_inputs, test_hostile_runs

P4INFOS = sorted(PROGRAMS.glob("*.p4info.txtpb"))
WORDS = (b"{", b"}", b"-1", b"0", b"4294967296", b"1" * 400, b'""', b'"\\377"', b"#", b"EXACT")

Rng = np.random.Generator


def p4info(folder: Path, rng: Rng) -> Exception | None:
    """Put a damaged P4Info beside its program, and read both as `canary-switch` does."""
    file = P4INFOS[rng.integers(len(P4INFOS))]
    lines = file.read_bytes().splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        a, b = rng.integers(len(lines), size=2)
        match rng.integers(5):
            case 0:
                lines[a] = lines[b]
            case 1:
                lines[a : a + 1] = []
            case 2:
                lines[a:a] = lines[b : b + rng.integers(1, 30)]
            case 3:
                words = lines[a].split() or [b""]
                words[rng.integers(len(words))] = WORDS[rng.integers(len(WORDS))]
                lines[a] = b" ".join(words)
            case _:
                lines = test_hostile_inputs.damaged(b"\n".join(lines), rng).split(b"\n")
    program = folder / "program.json"
    shutil.copy(file.with_name(file.name.replace(".p4info.txtpb", ".json")), program)
    program.with_name("program.p4info.txtpb").write_bytes(b"\n".join(lines))
    try:
        config.read_config(str(program), 511)()
    except (InvalidProgram, P4Error) as error:
        return error
    return None


def capture(folder: Path, rng: Rng) -> Exception | None:
    """Replay a damaged capture."""
    try:
        test_hostile_inputs.try_capture(folder, rng)
    except CaptureError as error:
        return error
    return None


class Runs:
    """Runs without packets, and their exchange files, to be damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[Path] = []
        for seed in (1, 2):
            asked = {"backend": "flow", "epochs": 2, "epoch_ms": 100, "load": 0.1, "seed": seed}
            run_experiment(
                layout_of(make_settings(asked)),
                folder / f"run{seed}",
                find_methods("canary-mle,007"),
            )
            self.runs.append(folder / f"run{seed}")
        for suffix in ("csv", "parquet"):
            export(self.runs[0], folder / suffix, f".{suffix}", False)

    def record(self, folder: Path, rng: Rng) -> Exception | None:
        """Read everything of a damaged run whose manifest is not asked."""
        one, other = self.runs if rng.random() < 0.5 else self.runs[::-1]
        run = folder / "run"
        shutil.copytree(one, run)
        for _ in range(rng.choice((1, 1, 2))):
            try:
                test_hostile_runs.pick(rng, test_hostile_runs.MUTATIONS)(run, rng, other)
            except (OSError, ValueError, IndexError):
                continue  # an earlier change took that away
        try:
            with test_hostile_runs.in_time():
                test_hostile_runs.read_everything(run, folder / "out", True)
        except Exception as error:
            if not test_hostile_runs.is_refusal(error, run):
                raise
            return error
        return None

    def exchange(self, folder: Path, rng: Rng) -> Exception | None:
        """Read damaged files of a fabric and its observations."""
        suffix = ("csv", "parquet")[rng.integers(2)]
        files = [folder / f"{name}.{suffix}" for name in ("fabric", "observations")]
        for file in files:
            shutil.copy(self.folder / suffix / file.name, file)
        file = files[rng.integers(2)]
        file.write_bytes(test_hostile_inputs.damaged(file.read_bytes(), rng))
        try:
            with test_hostile_runs.in_time():
                read_observations(files[1], read_fabric(files[0]))
        except Exception as error:
            if not test_hostile_runs.is_refusal(error, folder):
                raise
            return error
        return None


def readers(folder: Path) -> dict[str, Callable[[Path, Rng], Exception | None]]:
    """Return what damages an input of each kind and reads it; it returns the refusal."""
    runs = Runs(folder)
    return {
        "p4info": p4info,
        "captures": capture,
        "records": runs.record,
        "exchange": runs.exchange,
    }
