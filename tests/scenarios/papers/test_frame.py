# SPDX-License-Identifier: Apache-2.0
"""Experiments are kept piece by piece, drawn, and held against what the papers print."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from analysis.evaluation import pictures
from scenarios.command.shelf import Shelf
from scenarios.many.work import LocalWorkers, Outcome, Outcomes, Work
from scenarios.papers import canary_flows, canary_localization, vigil
from scenarios.papers.experiment import (
    Effort,
    Experiment,
    Panel,
    Printed,
    Reason,
    Row,
    Task,
    by_draw,
    draw_groups,
)
from scenarios.papers.registry import EXPERIMENTS, TASKS, experiments_named, numbers, read_values
from scenarios.papers.reproduce import reproduce, was_run
from scenarios.papers.verdicts import figures_of, verdicts
from testbed.record.files import read_columns
from testbed.record.run import RunError
from testbed.record.yaml_file import YamlError
from tests.conftest import quiet
from tests.scenarios.conftest import Canary, refused

PAPER = Printed("F1", "a", "1", 0.5, "stated", section="1", quote="0.5")
CALLS: list[int] = []


class Here(LocalWorkers):
    """This process, where all is compiled."""

    def outcomes(self, pieces: Mapping[str, Work], folder: Path) -> Outcomes:
        for name, work in pieces.items():
            place = folder / f".{name}-12345678"
            place.mkdir()
            yield name, Outcome(work(place))


def draw(number: int) -> list[Row]:
    CALLS.append(number)
    return [Row("F1", "a", x, number, 0.5 + 0.01 * (number % 5 - 2)) for x in ("1", "2")]


def toy(**changed: object) -> Experiment:
    made = Experiment(
        name="toy",
        paper="a paper",
        shows="nothing",
        setting="A toy.",
        seconds=1,
        memory_mb=1,
        panels=(Panel("F1", "x", "y"),),
        tasks=partial(by_draw, task=draw),
        values=(PAPER,),
    )
    return replace(made, **changed)


def verdict(paper: Printed, *reasons: Reason) -> str:
    rows = [row for n in range(20) for row in draw(n)]
    ours = figures_of({name: [row[i] for row in rows] for i, name in enumerate(Row._fields)})
    [line] = verdicts(toy(reasons=reasons, values=(paper,)), ours)
    return line.verdict


def test_verdicts_are_computed() -> None:
    assert verdict(PAPER) == "agrees"
    assert verdict(PAPER._replace(value=0.519)) == "agrees"  # one draw may be there
    assert verdict(PAPER._replace(value=0.519, mean=True)) == "not explained"  # no mean is
    assert verdict(PAPER._replace(value=0.519, mean=True, rounding=0.02)) == "agrees"
    assert verdict(PAPER._replace(value=0.6)) == "not explained"
    assert verdict(PAPER._replace(x="3")) == "cannot be compared"
    for side, value, expected in (
        ("above", 0.4, "agrees"),
        ("above", 0.6, "not explained"),
        ("below", 0.6, "agrees"),
        ("below", 0.4, "not explained"),
    ):
        bound = PAPER._replace(kind="bound", side=side, value=value)
        assert verdict(bound) == expected


def test_a_reason_holds_for_the_figures_that_it_was_written_for() -> None:
    far = PAPER._replace(value=1.0)
    assert verdict(far, Reason("because", ("F1",), ("a",), ("1",), ratio=(0.4, 0.6))) == "explained"
    assert verdict(far, Reason("because", ("F1",), ratio=(0.4, 0.6))) == "explained"
    assert verdict(far, Reason("because", ("F1",), ratio=(0.6, 0.9))) == "not explained"
    assert verdict(far, Reason("because", ("F1",), ("b",), ratio=(0.4, 0.6))) == "not explained"
    assert (
        verdict(far, Reason("because", ("F1",), ("a",), ("2",), ratio=(0.4, 0.6)))
        == "not explained"
    )
    assert verdict(PAPER, Reason("no such thing", ("F1",), cannot=True)) == "cannot be compared"


def test_of_several_series_those_are_held_against_a_value_that_there_are() -> None:
    ours = figures_of({name: [row[i] for row in draw(0)] for i, name in enumerate(Row._fields)})
    for series, expected in ((("a", "captured"), ["a"]), (("b", "c"), ["b", "c"])):
        lines = verdicts(toy(series={"a": series}), ours)
        assert [line.series for line in lines] == expected


def test_draws_that_share_a_calibration_are_done_together() -> None:
    assert draw_groups(20) == {"draws-0-19": range(20)}
    assert list(draw_groups(42).values()) == [range(20), range(20, 40), range(40, 42)]
    assert not set(draw_groups(20)) & set(draw_groups(7))  # as they are parts of their own


def test_what_is_interrupted_goes_on_where_it_stopped(tmp_path: Path) -> None:
    CALLS.clear()

    def run(draws: int, **changed: object) -> list[int]:
        before = len(CALLS)
        reproduce(toy(**changed), quiet, tmp_path, Effort(draws), workers=Here(1))
        return sorted(CALLS[before:])

    def stop(what: str, share: float) -> None:
        if what == "parts of toy: 3 of 5":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        reproduce(toy(), stop, tmp_path, Effort(5), workers=Here(1))
    assert "3 of 5 parts of toy are kept" in stopped.value.__notes__[0]
    assert not was_run(toy(), tmp_path)
    parts = tmp_path / "toy" / "parts"
    kept = {int(path.stem.removeprefix("draw-")) for path in parts.glob("*.parquet")}
    assert len(kept) == 3
    assert run(5) == sorted({0, 1, 2, 3, 4} - kept)
    assert run(7) == [5, 6]  # more draws are added
    (parts / "draw-1.parquet").write_bytes(b"damaged")
    assert run(7) == [1]
    assert run(2, setting="Another toy.") == [0, 1]  # all anew
    assert len(read_columns(tmp_path / "toy" / "results.parquet")["value"]) == 4


def some_fail(effort: Effort) -> dict[str, Task]:
    return {"draw-0": partial(draw, 0), "draw-1": partial(math.sqrt, -1)}  # type: ignore[dict-item]


def test_parts_are_computed_in_processes_and_one_that_fails_does_not_stop_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))  # processes import this module
    experiment = toy(tasks=some_fail)
    with pytest.raises(RunError, match="1 of 2 parts of toy failed, draw-1: .*domain error"):
        reproduce(experiment, quiet, tmp_path, Effort(2))
    parts = tmp_path / "toy" / "parts"
    assert {path.name for path in parts.iterdir()} == {
        "commit.txt", "draw-0.parquet", "draw-1-failure.txt", "took.json",
    }  # fmt: skip
    assert "domain error" in (parts / "draw-1-failure.txt").read_text()


def test_experiments_can_be_sent_to_other_processes() -> None:
    for experiment in EXPERIMENTS.values():
        assert pickle.loads(pickle.dumps(experiment)).name == experiment.name


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "mine.txt").touch()
    with pytest.raises(RunError, match="is no reproduction"):
        reproduce(toy(), quiet, tmp_path, Effort(2))


def test_numbers_in_quotes() -> None:
    assert {54608.0, 432304.0} <= set(numbers("FlowRadar 54,608 432, 304"))
    assert {200.0, 500.0, 1000.0} <= set(numbers("as 200, 500, and 1,000"))
    assert numbers("2.85×10^{-5}")[0] == pytest.approx(2.85e-5)
    assert {0.6, 4100.0, 36.7} <= set(numbers(".6/4.1k, 36.7%"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("kind: stated", "0.5 is stated, but not in the quote"),
        ("kind: bound", "a bound needs a side"),
        ("kind: derived", "a derived value needs its arithmetic"),
        ("kind: seen", "kind"),
    ],
)
def test_values_that_do_not_hold_are_refused(changed: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(
        "figures:\n  a:\n"
        "    {paper: a, shows: b, setting: c, seconds: 1, memory_mb: 1, panels: [], values: [\n"
        "    {quantity: F1, series: a, section: '1', quote: half of it, "
        f"values: {{1: 0.5}}, {changed}}}]}}\n"
    )
    with pytest.raises(YamlError, match=message) as error:
        read_values(file)
    assert "line 4" in str(error.value)


def test_every_figure_is_declared_and_computed() -> None:
    assert set(read_values()) == set(TASKS) == set(EXPERIMENTS)
    bare = {name for name, experiment in EXPERIMENTS.items() if not experiment.values}
    assert bare == {"flock-3", "flock-5", "flock-8"}  # they are drawn, no number is printed
    for experiment in EXPERIMENTS.values():
        drawn = {panel.quantity for panel in experiment.panels}
        for value in experiment.values:
            quantities = {each for each, _ in experiment.ours(value.quantity, value.series)}
            assert quantities & drawn or value.kind == "bound", value
            assert value.quote and value.section and math.isfinite(value.value)


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer epochs than a figure is drawn from."""
    monkeypatch.setattr(canary_flows, "EPOCHS", 20)
    monkeypatch.setattr(vigil, "EPOCHS", 1)
    monkeypatch.setitem(canary_localization.SETTINGS, "epochs", 2)


_LONG = ("flock-table-1",)
_DRAWN = ("canary-8", "flock-2", "detector-plans")  # in all formats; two more take half the time


@pytest.mark.parametrize(
    "name",
    [pytest.param(e, marks=[pytest.mark.nightly] * (e in _LONG)) for e in EXPERIMENTS],
)
@pytest.mark.usefixtures("few_epochs")
def test_each_experiment_at_its_smallest(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = EXPERIMENTS[name]
    if name not in _DRAWN:
        monkeypatch.setattr(pictures, "SUFFIXES", (".png",))
    effort = Effort(draws=2, small=True)
    lines = reproduce(experiment, quiet, tmp_path, effort, workers=Here(1))
    folder = tmp_path / name
    figures = {f"figure{suffix}" for suffix in pictures.SUFFIXES}
    there = {*figures, "table.md", "results.parquet", "setting.json"}
    assert {*there, "index.html", "parts"} == {path.name for path in folder.iterdir()}
    assert (folder / "figure.png").stat().st_size > 5000
    if name in _DRAWN:
        assert "<svg" in (folder / "figure.svg").read_text()
        assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert len(lines) >= len(experiment.values)
    table = (folder / "table.md").read_text()
    assert all(f"{line.series}, {line.quantity} at {line.paper.x}" in table for line in lines)
    rows = read_columns(folder / "results.parquet")
    assert set(rows) == set(Row._fields) and np.isfinite(rows["value"]).all()
    panels = {panel.quantity for panel in experiment.panels}
    assert panels <= set(rows["quantity"])
    # a value of no paper is told
    seen = [line for line in lines if line.ours is not None]
    assert seen or not lines
    figures = figures_of(rows)
    for line in seen:
        assert line.ours is not None
        far = 1e6 + 1e3 * abs(line.ours.mean.mean)
        wrong = line.paper._replace(value=far, kind="stated", side=None, rounding=0.0)
        told = verdicts(replace(experiment, values=(wrong,)), figures)
        cannot = {"cannot be compared"} if any(r.cannot for r in experiment.reasons) else set()
        assert {each.verdict for each in told if each.ours} <= {"not explained"} | cannot
    assert f'href="{name}/"' in Shelf(tmp_path).page()


def test_the_command_lists_and_refuses(canary: Canary, tmp_path: Path) -> None:
    out = f"OUT={tmp_path}"
    result = canary("reproduce", out)
    assert result.code == 0 and all(name in result.out for name in EXPERIMENTS)
    refused(canary("reproduce", "FIG=canary-88", out), "there is no figure canary-88", "canary-8")
    refused(canary("reproduce", "FIG=canary-8", "DRAWS=1", out), "greater than or equal to 2")
    refused(
        canary("reproduce", "FIG=canary-8", "TRACE=a.pcap", out), "TRACE has no effect on canary-8"
    )
    refused(canary("reproduce", "FIG=canary-7", "TRACE=a.pcap", out), "there is no such file")
    (tmp_path / "a.pcap").write_text("none")
    wrong = canary("reproduce", "FIG=canary-7", f"TRACE={tmp_path / 'a.pcap'}", out)
    refused(wrong, "is not a capture")
    assert not (tmp_path / "canary-7").exists()
    every, quick = ([each.name for each in experiments_named(names)] for names in ("all", "quick"))
    assert every == list(EXPERIMENTS) and set(quick) < set(every)
    result = canary("reproduce", "FIG=canary-table-3", out)
    assert result.code == 0 and "canary-table-3/index.html" in result.out
    assert "not explained" not in result.out
    results = tmp_path / "results.json"
    assert canary("reproduce", f"RESULTS={results}", out).code == 0
    written = json.loads(results.read_text())
    assert list(written) == ["canary-table-3"] and written["canary-table-3"]["draws"] == 1
    found = Counter(line[4] for line in written["canary-table-3"]["lines"])
    assert found == {"agrees": 10, "explained": 2}
