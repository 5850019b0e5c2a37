# SPDX-License-Identifier: Apache-2.0
"""A measurement and a method of a package outside: built, installed, run, read again."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from testbed.dataplane import source_digests
from testbed.record.run import RunDirectory
from tests.distributions import built_of

OUTSIDE = Path(__file__).parent / "outside"
PACKAGE = OUTSIDE / "canary_buckets"
LINES = 150
FAULT = ("--faults", "agg0_0->core0:0.5", "--noise", "0")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package was installed from a wheel."""
    folder = tmp_path_factory.mktemp("outside")
    source = shutil.copytree(OUTSIDE, folder / "source")
    wheel = built_of("wheel", source, folder)
    command = [sys.executable, "-m", "pip", "install", "-qq", "--no-index", "--no-deps"]
    target = folder / "installed"
    subprocess.run([*command, "--target", target, wheel], check=True, cwd=folder)
    return target


def canary(installed: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-P", "-m", "scenarios", *map(str, words)]
    root = Path(__file__).parents[3]
    own = os.environ | {"PYTHONPATH": os.pathsep.join([path, str(root)])}
    return subprocess.run(command, env=own, cwd=installed, capture_output=True, text=True)


@pytest.mark.parametrize(
    "backend",
    [
        "virtual",
        pytest.param(
            "softswitch", marks=(pytest.mark.root, pytest.mark.real_time, pytest.mark.nightly)
        ),
    ],
)
def test_its_method_has_its_measurement_made_and_finds_the_fault(
    backend: str, installed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    small = ("--epochs", "2", "--load", "0.01", "--backend", backend, *FAULT)
    done = canary(installed, "run", "--methods", "worst-bucket", "--run", run, *small)
    assert done.returncode == 0, done.stderr
    config = json.loads((run / "config.json").read_text())
    assert config["measurements"] == ["flows", "buckets"]
    assert "measurement.p4" in config["p4_sources_sha256"]
    assert (run / "buckets.parquet").is_file() and not (run / "probe_counts.parquet").exists()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["methods"]["worst-bucket"]["directed"]["f1"] == 1
    counts = RunDirectory(run).table("links")
    found = pq.read_table(run / "buckets.parquet").to_pandas().groupby("link").sum()
    assert (counts["packets"] - found["sent"]).abs().max() <= 2  # expiring ones are not counted
    assert found["lost"].sum() == counts["fault_drops"].sum() > 0

    again = canary(installed, "analyze", run, "--methods", "worst-bucket,canary")
    assert again.returncode == 0, again.stderr
    assert "canary needs the telemetry part 'segments': MEASURE=canary measures it" in again.stdout


def test_it_is_measured_beside_others_where_it_is_asked_for(
    installed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    small = ("--epochs", "1", "--load", "0.01", "--backend", "virtual", *FAULT)
    words = ("--methods", "canary", "--measure", "buckets", "--run", run)
    assert canary(installed, "run", *words, *small).returncode == 0
    assert (run / "buckets.parquet").is_file() and (run / "rules.parquet").is_file()


def test_a_run_with_it_is_read_where_it_is_not_installed(installed: Path, tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    elsewhere.mkdir()
    small = ("--epochs", "1", "--load", "0.01", "--backend", "virtual", *FAULT)
    words = ("--methods", "canary-mle,worst-bucket", "--run", run)
    assert canary(installed, "run", *words, *small).returncode == 0
    done = canary(elsewhere, "analyze", run, "--methods", "canary-mle")
    assert done.returncode == 0, done.stderr


def test_the_package_is_short() -> None:
    files = (PACKAGE / "__init__.py", PACKAGE / "measurement.p4")
    assert sum(len(file.read_text().splitlines()) for file in files) < LINES


def test_its_program_was_made_of_these_sources() -> None:
    own = hashlib.sha256((PACKAGE / "measurement.p4").read_bytes()).hexdigest()
    made = source_digests(PACKAGE / "build" / "canary.json")
    assert made == {**source_digests(), "measurement.p4": own}
