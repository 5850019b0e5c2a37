# SPDX-License-Identifier: Apache-2.0
"""``canary export`` and ``canary localize``, and methods that other packages bring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from analysis.methods import registry
from analysis.methods.registry import METHODS, ON_REQUEST, find_methods, make_method, method_names
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.command.localize import export, localize
from testbed.record.outputs import FolderError
from testbed.record.run import RunDirectory, RunError
from testbed.record.schema import TableError
from tests.analysis.telemetry.conftest import Files
from tests.conftest import quiet
from tests.scenarios.conftest import Canary, refused


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """In the current folder."""
    monkeypatch.chdir(tmp_path)
    return Files(tmp_path)


def test_a_run_is_exported_and_localized(
    run_path: Path, tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = canary("export", str(run_path), "--out", "files", "--csv")
    assert written.code == 0, written.err
    assert written.out.split() == ["files/fabric.csv", "files/observations.csv"]
    assert export(run_path, tmp_path / "files", ".parquet")[0].name == "fabric.parquet"
    with pytest.raises(RunError, match="exists already"):
        export(run_path, tmp_path / "files", ".csv")
    with pytest.raises(RunError, match="nowhere"):
        export(tmp_path / "nowhere", tmp_path / "new", ".csv")
    assert not (tmp_path / "new").exists()

    names = ["--topology", "files/fabric.parquet", "--telemetry", "files/observations.csv"]
    wanted = "canary-mle,netbouncer,vigil"
    result = canary("localize", *names, "--method", wanted, "--out", "r.parquet")
    assert result.code == 0, result.err
    assert "\x1b" not in result.out
    assert "64 directed links, 20 switches (8 of tier 0)" in result.out
    for line in ("canary-mle blames", "netbouncer blames", "007 blames"):
        assert line in result.out
    rows = pq.read_table(tmp_path / "r.parquet").to_pydict()
    run = RunDirectory(run_path)
    for method in ("canary-mle", "netbouncer", "007"):
        own = [i for i, name in enumerate(rows["method"]) if name == method]
        blamed = {rows["name"][i] for i in own if rows["blamed"][i]}
        diagnosis = run.table(f"diagnoses/{method}")
        links = np.array(diagnosis["link"])
        devices = blamed & set(run.fabric.switch_names)
        assert blamed - devices == set(links[np.asarray(diagnosis["flagged"], bool)])
        ranks = [rows["rank"][i] for i in own if rows["name"][i] not in devices]
        assert ranks == list(range(1, 65))
        if method != "netbouncer":  # it prints a link without its direction
            assert all(name.split(" ")[0] in result.out for name in blamed)
        assert blamed or method != "canary-mle"


def test_a_run_in_parts_is_diagnosed_on_workers(run_path: Path, tmp_path: Path) -> None:
    fabric, parts = export(run_path, tmp_path / "files", ".parquet", parts=True)
    assert len(list(parts.iterdir())) == 4  # pods
    names = ["canary", "canary-mle", "netbouncer"]
    found = localize(fabric, parts, find_methods(",".join(names)), quiet)
    assert found.silent == [
        "netbouncer needs telemetry in one file: canary and canary-mle read parts"
    ]
    run = RunDirectory(run_path)
    assert f"observations: {len(run.table('segments')['sent']):,} segment" in found.heading()
    for method, diagnosis in found.diagnoses.items():
        whole = run.table(f"diagnoses/{method}")
        np.testing.assert_array_equal(diagnosis.score, whole["score"])
        np.testing.assert_array_equal(diagnosis.success, whole["success"])
        assert diagnosis.flagged.tolist() == np.flatnonzero(whole["flagged"]).tolist()
    with pytest.raises(MissingTelemetry, match="needs telemetry in one file"):
        localize(fabric, parts, find_methods("flock"), quiet)
    with pytest.raises(RunError, match="is for telemetry in parts"):
        localize(fabric, fabric, find_methods("canary"), quiet, cluster="tcp://127.0.0.1:1")
    (parts / "part-001.parquet").write_bytes(b"damaged")
    with pytest.raises(TableError, match=r"part-001\.parquet is not readable Parquet"):
        localize(fabric, parts, find_methods("canary"), quiet)


def test_a_wrong_file_is_one_line(files: Files, canary: Canary) -> None:
    names = ["--topology", "fabric.csv", "--telemetry", "observations.csv"]
    files.observations.write_text(files.observations.read_text().replace("900,0", "900,901"))
    refused(canary("localize", *names), "observations.csv: row 10 (id 11)", "901")


def test_methods_without_their_telemetry_are_named(files: Files, tmp_path: Path) -> None:
    files.observations.write_text("\n".join(files.observations.read_text().splitlines()[:3]) + "\n")
    verdicts = localize(files.fabric, files.observations, find_methods("all"), quiet)
    assert "netbouncer" in verdicts.diagnoses and "007" not in verdicts.diagnoses
    assert "007 needs the telemetry part 'connections': it is missing" in verdicts.silent
    with pytest.raises(MissingTelemetry, match="007 needs"):
        localize(files.fabric, files.observations, find_methods("007"), quiet)
    with pytest.raises(FolderError, match="/no/rankings.parquet: there is no folder"):
        verdicts.write(tmp_path / "no" / "rankings.parquet")
    for name in ("r.parquet", "r.csv"):
        verdicts.write(tmp_path / name)
    rows = pq.read_table(tmp_path / "r.parquet").to_pydict()
    assert pd.read_csv(tmp_path / "r.csv")["name"].tolist() == rows["name"]
    with pytest.raises(TableError, match=r"must end in \.parquet or \.csv"):
        verdicts.write(tmp_path / "r.xlsx")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vigil", ["007"]),
        ("flock, netbouncer,007,vigil", ["flock", "netbouncer", "007"]),
        ("max-coverage,007-binary", ["max-coverage", "007-binary"]),
        ("all", list(METHODS)),
        (" all , sherlock", [*METHODS, "sherlock"]),
        ("sherlock,all,flock", ["sherlock", *METHODS]),
        ("all,flock:p_bad=0.01", [*METHODS, "flock:p_bad=0.01"]),
    ],
)
def test_methods_by_name(text: str, found: list[str]) -> None:
    assert [each.name for each in find_methods(text)] == found


@pytest.mark.parametrize("text", ["", "flock,", "Flock", "all:p_bad=0.01", "every"])
def test_unknown_methods_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="use canary, netbouncer, .*, or all"):
        find_methods(text)


PACKAGE = """\
class Everything:
    name = "everything"

    def localize(self, telemetry):
        import numpy as np
        from analysis.methods.diagnosis import Diagnosis
        n = telemetry.topology.n_links
        every = np.arange(n, dtype=np.int32)
        return Diagnosis(self.name, "directed", every, np.full(n, np.nan), np.ones(n), 0.0)

    def telemetry_bytes(self, telemetry):
        return 0

    def probe_packets(self, telemetry):
        return 0


class NoMethod:
    pass
"""


def install(folder: Path, points: dict[str, str]) -> None:
    """What an installer leaves of a package with these entry points."""
    (folder / "someones_methods.py").write_text(PACKAGE)
    info = folder / "someones_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-methods\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[canary.methods]", *lines]) + "\n")


def test_methods_of_installed_packages(
    files: Files, tmp_path: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        {
            "everything": "someones_methods:Everything",
            "broken": "someones_methods:Nothing",
            "gone": "nowhere_at_all:Method",
            "none": "someones_methods:NoMethod",
        },
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert method_names() == [*METHODS, *ON_REQUEST, "broken", "everything", "gone", "none"]
    assert make_method("everything").name == "everything"
    for name, reason in (
        ("broken", "method 'broken' of someones-methods cannot be loaded: AttributeError"),
        ("gone", "method 'gone' of someones-methods cannot be loaded: ModuleNotFoundError"),
        ("none", r"method 'none' of someones-methods cannot be used: it has no localize\(\)"),
    ):
        with pytest.raises(ValueError, match=reason):
            make_method(name)
    names = ["--topology", "fabric.csv", "--telemetry", "observations.csv"]
    verdicts = localize(
        files.fabric, files.observations, find_methods("everything,netbouncer"), quiet
    )
    assert len(verdicts.diagnoses["everything"].flagged) == 8
    refused(canary("localize", *names, "--method", "gone"), "gone", "nowhere_at_all")


def test_a_name_is_taken_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, {"flock": "someones_methods:Everything"})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="someones_methods:Everything has the name of flock"):
        registry.method_names()


def test_the_command_prints_the_receipt_and_can_be_strict(files: Files, canary: Canary) -> None:
    table = pd.read_csv(files.observations, skiprows=1)
    table.to_csv(files.observations, na_rep="NA")
    names = [
        "localize", "--topology", str(files.fabric), "--telemetry", str(files.observations),
        "--method", "netbouncer",
    ]  # fmt: skip
    found = canary(*names)
    assert found.code == 0, found.err
    assert "observations.csv: NA and the like in epoch read as missing (12); " in found.out
    assert "the index of the rows left out" in found.out
    refused(canary(*names, "--strict"), "the first line must be")
    as_json = canary(*names, "--json")
    assert '"receipt": [\n    "observations.csv: NA and the like' in as_json.out
    assert '"blamed": [' in as_json.out
