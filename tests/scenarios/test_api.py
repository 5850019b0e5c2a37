# SPDX-License-Identifier: Apache-2.0
"""The testbed from Python: `run`, `load`, frames, verdicts; and the notebook that shows them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import scenarios
from analysis.methods.mle.mle import CanaryMle
from canary import Fault, FaultPlan, Run, Scenario, Settings, load, localize, run
from testbed.fabric.clos import Fabric
from tests.present import present
from tests.scenarios.conftest import Canary


@pytest.fixture(scope="module")
def result(run_path: Path) -> Run:
    return load(run_path)


def test_importing_is_quick() -> None:
    """What `run` and `load` need is imported when they are asked for."""
    watch = (
        "import sys, canary, scenarios.command.cli\n"
        "print([name for name in ('numpy', 'pandas', 'pydantic', 'scenarios.api')"
        " if name in sys.modules])\n"
        "from canary import load, run\n"
        "print('pandas' in sys.modules, callable(load), callable(run))"
    )
    done = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False True True"]
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = scenarios.nothing_like_it


def test_a_run_from_python_is_that_of_the_command(canary: Canary, tmp_path: Path) -> None:
    asked = {"epochs": 2, "load": 0.005, "seed": 4}
    here = run("flap", path=tmp_path / "here", **asked)
    words = [f"{name.upper()}={value}" for name, value in asked.items()]
    ended = canary("run", "SCENARIO=flap", "BACKEND=virtual", *words, f"RUN={tmp_path}/there")
    assert ended.code == 0, ended.err
    there = load(tmp_path / "there")
    assert here.tables == there.tables and here.faulty == there.faulty
    for name in ("flows", "links", "diagnoses/flock"):
        assert here.table(name).equals(there.table(name))
    again = run(config=tmp_path / "there", path=tmp_path / "again")
    assert again.table("drops").equals(here.table("drops"))


def test_methods_and_their_parameters(result: Run, tmp_path: Path) -> None:
    made = run(
        epochs=1,
        load=0.002,
        path=tmp_path / "run",
        methods="007,canary:penalty=2",
        parameters="paper",
    )
    assert list(made.figures.index) == ["007", "canary:penalty=2.0"]
    assert made.table("diagnoses/canary:penalty=2.0")["flagged"].dtype == bool
    origins = {name: entry["parameters_from"] for name, entry in made.summary["methods"].items()}
    assert origins == {"007": "paper", "canary:penalty=2.0": "paper, as named"}
    assert "parameters: paper (007); paper, as named" in str(made)
    paper, higher = result.diagnose("007", parameters="paper"), result.diagnose("007:threshold=0.1")
    assert result.diagnose("007:threshold=0.01").blamed == paper.blamed != higher.blamed


def test_a_run_without_a_path_gets_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("scenarios.api.default_directory", lambda name: Path("runs") / name)
    made = [run(epochs=1, load=0.002) for _ in range(2)]
    assert [run.path.name for run in made] == ["faulty_links", "faulty_links-2"]


def test_mistakes_are_one_line(result: Run, tmp_path: Path) -> None:
    for wrong, why in (
        (lambda: cast(Any, run)(kk=8), "there is no setting kk: did you mean k?"),
        (lambda: run("nope"), "no scenario 'nope'"),
        (lambda: run(topology="leaf-spine:8:4", backend="flow", k=8), "has no effect"),
        (lambda: load(tmp_path / "nowhere"), "nowhere"),
        (lambda: result.table("lniks"), "links"),
        (lambda: result.diagnose("canry"), "canary"),
        (lambda: result.diagnose("canary:groups=0.5+0.1"), "groups must fall"),
        (lambda: result.diagnose("canary,007"), "names 2 methods"),
    ):
        with pytest.raises(ValueError, match=r"^[^\n]+$") as error:
            wrong()
        assert why in str(error.value)


def test_a_changed_run_is_read_on_trust_alone(result: Run, tmp_path: Path) -> None:
    changed = shutil.copytree(result.path, tmp_path / "run")
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="config.json"):
        load(changed)
    assert load(changed, trust=True).settings == result.settings


def test_tables_are_frames(result: Run) -> None:
    assert {"links", "flows", "connections", "registers"} <= set(result.tables)
    for name in set(result.tables) - {"registers"}:
        frame, columns = result.table(name), result.record.table(name)
        assert list(frame.columns) == list(columns)
    links, columns = result.table("links"), result.record.table("links")
    assert links[links.faulty]["name"].tolist() == result.faulty
    assert (links.packets.to_numpy() == columns["packets"]).all()
    paths = result.record.table("connections")["path"]
    frame = result.table("connections")
    assert len(frame) == len(paths) > 0
    for row in (0, len(paths) - 1):
        assert frame.path[row].tolist() == paths.links[paths.ptr[row] : paths.ptr[row + 1]].tolist()


def test_registers_are_those_of_all_epochs(result: Run) -> None:
    frame = result.table("registers")
    assert list(frame.columns)[:2] == ["epoch", "switch"] and frame.index.is_unique
    assert frame.epoch.unique().tolist() == list(range(4))
    for epoch in range(4):
        own = frame[frame.epoch == epoch].drop(columns="epoch").reset_index(drop=True)
        for name, column in result.record.table(f"registers/epoch-{epoch:03d}").items():
            assert (np.asarray(own[name]) == column).all()


def test_flow_ids_are_addresses(result: Run) -> None:
    """The flows that were monitored are flows of the traffic, and no others."""
    rules = result.table("rules")
    ends = result.addresses(rules)
    assert ends.index.equals(rules.index) and len(ends) > 100
    flows = result.table("flows")
    names = np.array(result.record.fabric.host_names)  # type: ignore[attr-defined]
    columns = ["src_host", "src_port", "dst_host", "dst_port", "protocol"]
    flows = flows.assign(src_host=names[flows.src_host], dst_host=names[flows.dst_host])
    known = set(flows[columns].itertuples(index=False, name=None))
    assert set(ends[columns].itertuples(index=False, name=None)) <= known
    own = ends[ends.src_host == "h2_1_0"].src_ip.unique()
    assert own.tolist() == ["10.2.1.2"]
    top = result.table("registers").nlargest(5, "count")
    assert list(top.join(result.addresses(top)).columns[-7:]) == list(ends.columns)
    with pytest.raises(ValueError, match="the table has no flow IDs"):
        result.addresses(result.table("links"))


def test_addresses_of_nobody_have_no_name(result: Run) -> None:
    from pandas import DataFrame

    frame = result.addresses(DataFrame({"flow_hi": [0x0909090909], "flow_lo": [7]}, index=[3]))
    assert frame.loc[3].to_dict() == {
        "src_ip": "9.9.9.9",
        "src_host": "",
        "dst_ip": "9.0.0.0",
        "dst_host": "",
        "src_port": 0,
        "dst_port": 0,
        "protocol": 7,
    }


def test_figures_are_those_of_the_summary(result: Run) -> None:
    figures = result.figures
    assert list(figures.index) == list(result.summary["methods"])
    for name, entry in result.summary["methods"].items():
        assert figures.f1[name] == entry[entry["native"]]["f1"]
        assert figures.undirected_f1[name] == entry["undirected"]["f1"]


@pytest.mark.parametrize("method", ["canary", "netbouncer", "vigil"])
def test_a_verdict_is_that_of_the_run(result: Run, method: str) -> None:
    verdict = result.diagnose(method)
    name = verdict.diagnosis.method
    entry = result.summary["methods"][name]
    own = entry[entry["native"]]
    assert (verdict.missed, verdict.wrong) == (own["missed"], own["wrong"])
    assert verdict.score.f1 == own["f1"]
    written = result.table(f"diagnoses/{name}")
    assert verdict.links.drop(columns="faulty").equals(written)
    assert verdict.blamed == written.link[written.flagged].tolist()
    assert f"F1 {own['f1']:.3f}" in repr(verdict)


def test_a_method_with_other_parameters(result: Run) -> None:
    blind = result.diagnose(CanaryMle(fault_rate=0.5))
    assert len(blind.blamed) < len(result.diagnose("canary-mle").blamed)
    assert np.isin(present(blind.truth), np.flatnonzero(blind.links.faulty)).all()


def test_it_prints_as_show_does(result: Run, canary: Canary) -> None:
    shown = canary("show", str(result.path)).out
    assert shown.startswith(str(result)), "but for where to look on"


def test_a_scenario_made_in_python_runs(tmp_path: Path) -> None:
    def one_link(topology: Fabric, settings: Settings) -> FaultPlan:
        return FaultPlan((Fault(topology.link("agg0_0->tor0_1"), 0.2),))

    asked = {"epochs": 1, "load": 0.005, "methods": "canary"}
    made = run(Scenario(make_faults=one_link), path=tmp_path / "run", **asked)
    assert made.faulty == ["agg0_0->tor0_1"] and made.summary["scenario"] == "own"
    with pytest.raises(ValueError, match="'own' is not in the library"):
        run(config=made.path)
    cases: list[tuple[Any, str]] = [
        (lambda topology, settings: None, "make_faults returns nothing"),
        (lambda topology: FaultPlan(), "two arguments"),
    ]
    for wrong, why in cases:
        with pytest.raises(ValueError, match=why):
            run(Scenario(make_faults=wrong), path=tmp_path / "none", **asked)
    assert not (tmp_path / "none").exists()


def test_frames_are_diagnosed_as_files_are(result: Run, canary: Canary, tmp_path: Path) -> None:
    from pandas import read_parquet

    assert canary("export", str(result.path), "--out", str(tmp_path)).code == 0
    files = tmp_path / "fabric.parquet", tmp_path / "observations.parquet"
    fabric, observations = (read_parquet(file) for file in files)
    there = localize(*files, "canary-mle")
    here = localize(fabric, observations, CanaryMle())
    assert here.blamed == there.blamed == result.diagnose("canary-mle").blamed
    assert here.links.equals(there.links) and "faulty" not in here.links
    assert repr(here) == f"<canary-mle: {len(here.blamed)} blamed>"
    with pytest.raises(ValueError, match="not known"):
        _ = here.score
    for wrong, why in (
        (observations.assign(lost=-1), r"^observations: row \d+ .*lost is -1: 0 to 10"),
        (observations.drop(columns="sent"), "^observations: row 0 .*sent is missing"),
        (observations.assign(sent=object()), "^observations: "),
    ):
        with pytest.raises(ValueError, match=why) as error:
            localize(fabric, wrong, "canary-mle")
        assert "\n" not in str(error.value) and "/" not in str(error.value)
