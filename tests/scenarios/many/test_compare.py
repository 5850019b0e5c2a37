# SPDX-License-Identifier: Apache-2.0
"""Many seeds: nothing lost by an interruption or a failing seed, and figures that are right."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from analysis.evaluation.comparison import degraded_seeds
from analysis.methods.parameters import DEFAULTS
from analysis.methods.registry import find_methods
from scenarios.command.arguments import parse_seeds
from scenarios.experiment import recording
from scenarios.experiment.settings import Settings
from scenarios.many.compare import Comparison, _seed_file, code_digest, compare, default_folder
from scenarios.many.work import _work
from scenarios.process.signals import Stopped
from testbed.record.atomic import FolderError
from testbed.record.files import read_columns, write_columns
from testbed.record.run import RunError
from testbed.record.schema import TableError
from tests.conftest import quiet, without_progress
from tests.patience import PATIENCE_S
from tests.scenarios.conftest import Canary

TINY = Settings(k=4, epochs=2, load=0.01)
NAMES = ["netbouncer", "007", "canary-mle"]
METHODS = find_methods(",".join(NAMES))


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1-3", [1, 2, 3]), ("7", [7]), ("5,1-2,2", [1, 2, 5]), (" 1 , 3-3 ", [1, 3])],
)
def test_seeds_are_ranges_and_lists(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "3-1", "1..3", "1,,2", "0-99999999", "1-2-3"]
)
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds"):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-99999999", "more than 100,000 seeds: compare fewer at a time"),
        ("1-60000,100000-160000", "more than 100,000 seeds"),
        ("9-3", "'9-3' runs backwards: use 3-9"),
        ("4294967296", "seeds are 0 to 4,294,967,295"),
        pytest.param("1-" + "9" * 5000, "seeds are 0 to", id="more digits than Python reads"),
    ],
)
def test_what_is_wrong_with_seeds_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_seeds(text)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Comparison]:
    folder = tmp_path_factory.mktemp("compared") / "here"
    return folder, compare("faulty_links", TINY, [1, 2], METHODS, folder, quiet)


def test_a_row_for_each_seed_and_method(compared: tuple[Path, Comparison]) -> None:
    folder, result = compared
    rows = read_columns(folder / "results.parquet")
    assert rows["seed"].tolist() == [1, 1, 1, 2, 2, 2]
    assert rows["method"] == NAMES * 2
    assert rows["native"] == ["undirected", "directed", "directed"] * 2
    assert rows["bench"] == ["published", "published", "project"] * 2
    assert not result.failures
    assert (rows["f1"][2::3] > 0.5).all()
    assert [len(rows["found_at"][i]) for i in range(6)] == rows["faulty"].tolist()
    assert (folder / "f1.png").read_bytes().startswith(b"\x89PNG")
    names = sorted(path.name for path in folder.iterdir())
    assert (folder / "f1.pdf").read_bytes().startswith(b"%PDF")
    assert "<svg" in (folder / "f1.svg").read_text()
    pictures = ["f1.pdf", "f1.png", "f1.svg"]
    assert names == sorted(
        ["comparison.json", *pictures, "results.parquet", "seed-1.parquet", "seed-2.parquet"]
    )


def test_figures_are_those_of_single_runs(
    compared: tuple[Path, Comparison], tmp_path: Path
) -> None:
    from scenarios.experiment.inputs import layout_of
    from scenarios.experiment.run import run_experiment

    summary = run_experiment(layout_of(replace(TINY, seed=2)), tmp_path / "run", METHODS)
    assert list(summary["methods"]) == NAMES
    rows = read_columns(compared[0] / "results.parquet")
    for at, method in enumerate(NAMES, start=3):
        entry = summary["methods"][method]
        own = entry[entry["native"]]
        for figure in ("precision", "recall", "f1", "accuracy"):
            assert rows[figure][at] == own[figure]
        assert rows["probe_packets"][at] == entry["probe_packets"]
        faulty = own["true_positives"] + own["false_negatives"]
        assert rows["faulty"][at] == faulty + rows["unobserved"][at], "neither found nor missed"


def test_seeds_are_added_and_none_runs_twice(compared: tuple[Path, Comparison]) -> None:
    folder, first = compared
    before = (folder / "seed-1.parquet").stat().st_mtime_ns
    result = compare("faulty_links", TINY, [1, 3], METHODS, folder, quiet)
    assert (folder / "seed-1.parquet").stat().st_mtime_ns == before
    assert result.rows["seed"].tolist() == [1, 1, 1, 3, 3, 3]
    assert np.array_equal(result.rows["f1"][:3], first.rows["f1"][:3])


def test_a_seed_that_was_exchanged_or_damaged_is_named(
    compared: tuple[Path, Comparison], tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(compared[0], folder)
    one, two = folder / "seed-1.parquet", folder / "seed-2.parquet"
    whole = two.read_bytes()
    two.write_bytes(one.read_bytes())
    with pytest.raises(
        TableError, match=f"{two} was changed after seed 2 wrote it: remove it, and run the same"
    ):
        compare("faulty_links", TINY, [1, 2], METHODS, folder, quiet)
    two.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        TableError, match=f"{two} is not readable Parquet: remove it, and run the same"
    ):
        compare("faulty_links", TINY, [1, 2], METHODS, folder, quiet)
    write_columns(two, {"seed": np.full(3, 2)})
    with pytest.raises(TableError, match=f"{two} was changed after seed 2 wrote it"):
        compare("faulty_links", TINY, [1, 2], METHODS, folder, quiet)


def test_a_folder_is_of_one_comparison(compared: tuple[Path, Comparison], tmp_path: Path) -> None:
    folder, _ = compared
    other = Settings(k=4, epochs=2, load=0.02)
    with pytest.raises(RunError, match="holds a comparison of other settings or code"):
        compare("faulty_links", other, [1], METHODS, folder, quiet)
    with pytest.raises(RunError, match="other settings"):
        compare("faulty_links", TINY, [1], METHODS[:1], folder, quiet)
    assert default_folder("faulty_links", other, METHODS) != default_folder(
        "faulty_links", TINY, METHODS
    )
    with (folder / "comparison.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FolderError, match="another command writes to"):
            compare("faulty_links", TINY, [1], METHODS, folder, quiet)
    (tmp_path / "letter.txt").write_text("dear diary")
    with pytest.raises(RunError, match="is no comparison"):
        compare("faulty_links", TINY, [1], METHODS, tmp_path, quiet)
    with pytest.raises(RunError, match="cannot write /proc/nowhere"):
        compare("faulty_links", TINY, [1], METHODS, Path("/proc/nowhere"), quiet)


@pytest.mark.parametrize("setting", ["faults", "traffic"])
def test_an_edited_file_is_another_comparison(tmp_path: Path, setting: str) -> None:
    file = tmp_path / {"faults": "mine.yaml", "traffic": "mine.pcap"}[setting]
    option = {"faults": "", "traffic": ":fit"}[setting]
    named = replace(TINY, **{setting: f"{file}{option}"})
    file.write_text("faults: [{percent: 10}]\n")
    before = default_folder("faulty_links", named, METHODS)
    assert default_folder("faulty_links", named, METHODS) == before
    file.write_text("faults: [{percent: 20}]\n")
    assert default_folder("faulty_links", named, METHODS) != before


def test_a_changed_import_is_another_comparison(tmp_path: Path) -> None:
    """The folder of an import was not looked into, so that seeds of two fabrics were mixed."""
    named = replace(TINY, topology=str(tmp_path))
    (tmp_path / "fabric.csv").write_text("link,src,dst\n")
    before = default_folder("faulty_links", named, METHODS)
    assert default_folder("faulty_links", named, METHODS) == before
    (tmp_path / "fabric.csv").write_text("link,dst,src\n")
    assert default_folder("faulty_links", named, METHODS) != before


def test_a_changed_traffic_table_is_another_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tmp_path / "testbed" / "traffic" / "data"
    tables.mkdir(parents=True)
    folders = []
    for table in ("1 50\n2 100\n", "1 60\n2 100\n"):
        (tables / "hadoop.txt").write_text(table)
        code_digest.cache_clear()
        monkeypatch.setattr(
            "scenarios.many.compare.__file__", str(tmp_path / "scenarios" / "many" / "x.py")
        )
        folders.append(default_folder("faulty_links", TINY, METHODS))
    code_digest.cache_clear()
    assert folders[0] != folders[1]


def test_a_changed_page_is_the_same_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setattr(
        "scenarios.many.compare.__file__", str(tmp_path / "scenarios" / "many" / "x.py")
    )
    for name in ("pages/run_page.py", "pages/assets/old.txt", "methods/canary.py"):
        path = tmp_path / "analysis" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
        code_digest.cache_clear()
        found.append(code_digest())
    code_digest.cache_clear()
    assert found[0] == found[1] != found[2]


def test_another_version_of_a_plugged_in_method_is_another_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(version: str, methods: str) -> Path:
        info = tmp_path / f"elsewhere-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Name: elsewhere\nVersion: {version}\n")
        (info / "entry_points.txt").write_text("[canary.methods]\nworst = elsewhere:Worst\n")
        face = "localize = telemetry_bytes = probe_packets = print"
        (tmp_path / "elsewhere.py").write_text(f"class Worst:\n    {face}\n")
        monkeypatch.syspath_prepend(tmp_path)
        try:
            return default_folder("faulty_links", TINY, find_methods(methods))
        finally:
            shutil.rmtree(info)

    assert folder("1.0", "canary,worst") != folder("1.1", "canary,worst")
    assert folder("1.0", "canary") == folder("1.1", "canary")


SELECTIVE = '''
"""Seed 2 cannot be parsed, seed 3 dies without a word, the others run."""
import os
from scenarios.experiment.request import Scenario
from testbed.faults.specification import parse_faults


def faults(topology, settings):
    if settings.seed == 2:
        raise ZeroDivisionError("no\\nsuch luck")
    if settings.seed == 3:
        os._exit(7)
    return parse_faults(settings.faults, topology, settings.seed)


SCENARIO = Scenario(make_faults=faults)
'''


def test_a_failing_seed_is_named_and_takes_no_other_along(tmp_path: Path) -> None:
    script = tmp_path / "selective.py"
    script.write_text(SELECTIVE)
    folder = tmp_path / "out"
    result = compare(str(script), TINY, [1, 2, 3, 4], METHODS[:1], folder, quiet)
    assert result.rows["seed"].tolist() == [1, 4]
    assert result.failures == {
        2: f"scenario file {script} line 10: ZeroDivisionError: no such luck",
        3: "its process ended with exit code 7",
    }
    assert "ZeroDivisionError" in (folder / "seed-2-failure.txt").read_text()
    with pytest.raises(ValueError, match="no seed ran: seed 2: .* line 10: ZeroDivisionError"):
        compare(str(script), TINY, [2], METHODS[:1], folder, quiet)
    script.write_text(SELECTIVE.replace("== 2", "== 9"))
    with pytest.raises(RunError, match="other settings"):
        compare(str(script), TINY, [1], METHODS[:1], folder, quiet)


def test_what_becomes_of_a_capture_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packets = []
    for i in range(200):
        ip = IP(src=f"192.0.2.{i % 9}", dst=f"198.51.100.{i % 7}")
        packets.append(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / TCP())
        packets[-1].time = 1000 + i * 0.002
    wrpcap(str(tmp_path / "long.pcap"), packets)
    settings = replace(TINY, traffic=str(tmp_path / "long.pcap"), epoch_ms=100)
    result = compare("faulty_links", settings, [1], METHODS[:1], tmp_path / "out", quiet)
    assert result.capture is not None
    assert (result.capture["frames"], result.capture["replayed"]) == (200, 100)
    messages = [record for record in caplog.records if record.levelname != "INFO"]
    assert [record.levelname for record in messages] == ["WARNING"]
    assert "long.pcap is longer than the run of 0.2 s: 100 of 200 frames" in caplog.text
    with pytest.raises(ValueError, match="no capture .*absent.pcap: check TRAFFIC"):
        absent = replace(TINY, traffic="absent.pcap")
        compare("faulty_links", absent, [1], METHODS[:1], tmp_path / "none", quiet)
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="is a capture, and BACKEND=flow sends no packets"):
        settings = replace(settings, backend="flow")
        compare("faulty_links", settings, [1], METHODS[:1], tmp_path / "flow", quiet)


OPTIONS = ["--epochs", "2", "--load", "0.01", "--methods", "netbouncer,vigil", "--out", "here"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "scenarios.command.cli", "compare", *OPTIONS, *arguments]


@pytest.mark.usefixtures("hangup_is_heard")
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly),
    ],
)
def test_an_interrupted_comparison_goes_on(
    tmp_path: Path,
    kind: signal.Signals,
    code: int,
    canary: Canary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen(
        command("--seeds", "1-40"), cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    folder = tmp_path / "here"
    deadline = time.monotonic() + PATIENCE_S
    while not list(folder.glob("seed-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, kind)  # as a terminal does it
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, errors
    assert len(without_progress(errors)) == 1
    kept = sorted(folder.glob("seed-*.parquet"))
    assert f"{len(kept)} of 40 seeds are kept in here: the same command continues" in errors
    assert {path.name for path in folder.iterdir()} == {
        "comparison.json",
        *(path.name for path in kept),
    }
    times = {path: path.stat().st_mtime_ns for path in kept}
    seeds = ",".join(path.stem.split("-")[1] for path in kept)
    monkeypatch.chdir(tmp_path)
    again = canary("compare", *OPTIONS, "--seeds", f"{seeds},99")
    assert again.code == 0, again.err
    assert times == {path: path.stat().st_mtime_ns for path in kept}
    assert "netbouncer *" in again.out and "007" in again.out
    assert f"{len(kept) + 1}" in again.out and "\x1b" not in again.out
    settings = json.loads((folder / "comparison.json").read_text())
    assert settings["methods"] == ["netbouncer", "007", "any-loss"]
    assert settings["load"] == 0.01


def test_a_signal_that_came_before_a_seed_began_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was blocked until then, and so comes at the first moment that it can."""

    def pending() -> None:
        raise Stopped(signal.SIGHUP)

    monkeypatch.setattr("scenarios.many.work.raise_on_signals", pending)
    receive, send = multiprocessing.Pipe(duplex=False)
    _work(lambda place: b"", tmp_path / "seed", cast(Connection, send))
    assert receive.recv().reason == "interrupted"
    assert not list(tmp_path.iterdir())


def test_a_killed_comparison_leaves_no_seed_at_work(tmp_path: Path) -> None:
    """Also by SIGKILL, of which it hears nothing itself."""
    process = subprocess.Popen(
        [*command("--seeds", "1-9"), "--epochs", "400"], cwd=tmp_path, start_new_session=True
    )
    deadline = time.monotonic() + PATIENCE_S
    while not list((tmp_path / "here").glob(".seed-*/run-1.partial")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    while at_work := processes_of(process.pid):
        assert time.monotonic() < deadline, at_work
        time.sleep(0.02)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["comparison.json"]


def processes_of(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("bad", [1, 3])
def test_a_degraded_seed_is_run_again_until_a_run_is_good(
    bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first ``bad`` runs are recorded as degraded, as a real network records them."""
    made = 0

    def degraded(*_: object) -> list[str]:
        nonlocal made
        made += 1
        return [f"try {made} was late"] if made <= bad else []

    monkeypatch.setattr(recording, "_degraded", degraded)
    settings = replace(TINY, epochs=1, seed=5)
    content = _seed_file("faulty_links", settings, "canary-mle", DEFAULTS, tmp_path)
    (tmp_path / "seed.parquet").write_bytes(content)
    rows = read_columns(tmp_path / "seed.parquet")
    assert made == rows["tries"].tolist()[0] == min(bad + 1, 3)
    assert rows["degraded"] == ["" if bad < 3 else "try 3 was late"]
    assert degraded_seeds(rows) == [5] * (bad == 3)
