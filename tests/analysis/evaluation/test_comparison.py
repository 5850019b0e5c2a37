# SPDX-License-Identifier: Apache-2.0
"""Statistics of a comparison, and that its plot is drawn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from analysis.evaluation.comparison import average_precision, found_at, mean_curve
from analysis.evaluation.comparison_plot import plot
from analysis.evaluation.comparison_table import (
    comparison_cells,
    comparison_table,
    differences,
    in_short,
    no_test,
)
from analysis.evaluation.intervals import interval, paired


def test_the_interval_of_known_values() -> None:
    rng = np.random.default_rng(1)
    sample = np.clip(rng.normal(0.7, 0.05, 400), 0.01, 0.99)
    found = interval(sample)
    error = sample.std(ddof=1) / np.sqrt(400)
    assert found.mean == pytest.approx(sample.mean())
    assert found.low == pytest.approx(found.mean - 2.11 * error, abs=error / 20)
    assert found.high == pytest.approx(found.mean + 2.11 * error, abs=error / 20)
    found = interval([0, 1, 1, 1, 1])
    assert found.mean == 0.8, "Clopper and Pearson's table"
    assert (found.low, found.high) == pytest.approx((0.2836, 0.9949), abs=1e-4)


LAWS = {
    "good and skewed": (lambda rng, n: rng.beta(20, 2, n), 20 / 22),
    "middling": (lambda rng, n: rng.beta(2, 2, n), 0.5),
    "uniform": (lambda rng, n: rng.uniform(0, 1, n), 0.5),
    "often perfect": (lambda rng, n: np.where(rng.random(n) < 0.7, 1, rng.random(n)), 0.85),
    "nearly always perfect": (
        lambda rng, n: np.where(rng.random(n) < 0.9, 1, rng.uniform(0.5, 1, n)),
        0.975,
    ),
    "all or nothing": (lambda rng, n: (rng.random(n) < 0.8).astype(float), 0.8),
    "hardly ever nothing": (lambda rng, n: (rng.random(n) < 0.95).astype(float), 0.95),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [3, 5, 10, 20])
def test_the_interval_covers_the_truth(law: str, n: int) -> None:
    """In 93 of 100 draws at least, also of few seeds that look alike."""
    draw, mean = LAWS[law]
    rng, covered, draws = np.random.default_rng(n), 0, 600
    for _ in range(draws):
        found = interval(draw(rng, n))
        covered += found.low - 1e-12 <= mean <= found.high + 1e-12
    assert covered / draws >= 0.93 - 2 * math.sqrt(0.93 * 0.07 / draws)


def test_intervals_of_one_or_equal_values() -> None:
    lone = interval([0.8])
    assert lone.mean == 0.8 and np.isnan(lone.low) and np.isnan(lone.high)
    same = interval([1.0, 1.0, 1.0])
    assert (same.mean, same.high) == (1.0, 1.0)
    assert same.low == pytest.approx(0.025 ** (1 / 3)), "three seeds prove little"


def test_differences_are_paired_by_seed() -> None:
    made = rows(8, {"a": 0.5, "b": 0.9, "c": 0.6})
    hard = np.repeat(np.linspace(-0.3, 0.05, 8), 3)
    made["f1"] = np.tile([0.5, 0.9, 0.6], 8) + hard + np.tile([0.0, 0.0, 0.01], 8) * hard
    (line,) = differences(made)
    assert line.startswith("as published, F1 of b less that of, on the same seeds: c +0.30")
    value = paired([0.1, 0.2, 0.3])
    assert value.mean == pytest.approx(0.2) and value.low == pytest.approx(
        0.2 - 4.3027 * 0.1 / 3**0.5, abs=1e-4
    )
    assert np.isnan(paired([0.1, 0.1]).low)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12))
def test_found_at_counts_the_links_accused(links: list[tuple[int, bool]]) -> None:
    score = np.array([s for s, _ in links], np.float64)
    faulty = np.array([f for _, f in links])
    plain = sorted(sum(other >= own for other in score) for own in score[faulty])
    assert found_at(score, faulty).tolist() == plain


def test_the_average_precision() -> None:
    score = np.array([9.0, 8.0, 7.0, 6.0, 5.0])
    faulty = np.array([True, False, True, False, False])
    found = found_at(score, faulty)
    assert found.tolist() == [1, 3]
    assert average_precision(found) == pytest.approx((1 + 2 / 3) / 2)
    # A ranking that knows nothing accuses all at once.
    flat = found_at(np.zeros(5), faulty)
    assert average_precision(flat) == pytest.approx(2 / 5)
    assert average_precision(found_at(score, np.zeros(5, np.bool_))) == 1.0


def test_the_curve_of_one_run_is_its_ranking() -> None:
    recall, precision = mean_curve([np.array([1, 3])])
    assert recall.tolist() == [0, 0.5, 0.5, 1]
    assert precision == pytest.approx([1, 1, 1 / 2, 2 / 3])
    assert mean_curve([]).shape == mean_curve([np.zeros(0, int)]).shape == (2, 0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_the_curve_of_perfect_rankings_is_perfect(faulty: list[int]) -> None:
    """However many links are faulty in each run."""
    recall, precision = mean_curve([np.arange(1, n + 1) for n in faulty])
    assert (precision == 1).all()
    assert recall[0] == 0 and recall[-1] == 1 and (np.diff(recall) >= 0).all()


@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=7, unique=True), min_size=1).map(
        lambda runs: [np.sort(run) for run in runs]
    )
)
def test_a_curve_goes_through_recalls_and_precisions_that_exist(runs: list[np.ndarray]) -> None:
    recall, precision = mean_curve(runs)
    assert recall[0] == 0 and recall[-1] == pytest.approx(1) and (np.diff(recall) >= 0).all()
    assert (precision >= 0).all() and (precision <= 1).all()
    first = np.mean([run[0] == 1 for run in runs])
    assert precision[1] == pytest.approx(first)


def test_each_block_has_a_best_method_of_its_own() -> None:
    blocks = comparison_cells(rows(20, {"a": 0.95, "b": 0.5, "c": 0.7}))
    assert list(blocks) == ["as published", "this project's"]
    good = {row[0].text: row[1].good for block in blocks.values() for row in block}
    assert good == {"b * !": False, "c": True, "a": True}


def with_reference(own: float) -> dict:
    made = rows(20, {"a": 0.99, "b": 0.5, "c": 0.8, "any-loss": own})
    bench = {"a": "project", "any-loss": "reference"}
    return made | {"bench": [bench.get(name, "published") for name in made["method"]]}


def test_a_setting_in_which_the_reference_wins_is_no_test() -> None:
    assert no_test(with_reference(0.6)) == ""
    result = no_test(with_reference(0.9))  # better than the best published one, c
    assert result.startswith("this setting is no test: ") and "the best method, c, 0.8" in result
    assert result in in_short(with_reference(0.9))
    assert no_test(rows(20, {"a": 0.1, "b": 0.1})) == ""  # without it nothing is said


def test_who_is_starved_is_marked() -> None:
    made = rows(2, F1)
    assert {row[0].text for row in _every(comparison_cells(made))} == {"a", "b * !", "c"}
    assert "b is starved: it got 50% of what it asked for" in in_short(made)


F1 = {"a": 0.9, "b": 0.5, "c": 0.7}


def _every(blocks: dict) -> list:
    return [row for block in blocks.values() for row in block]


def test_precision_is_the_mean_of_the_runs_that_blame_something(tmp_path: Path) -> None:
    made = rows(4, {"a": 0.9, "b": 0.5})
    made["precision"] = np.array([0.5, np.nan, np.nan, np.nan, 1.0, np.nan, 1.0, np.nan])
    a, b = reversed([row[2] for block in comparison_cells(made).values() for row in block])
    assert b.value is None and b.text == "– 0/4"
    assert a.value == pytest.approx(2.5 / 3) and a.text.startswith("0.83 ")
    assert a.text.endswith(" 3/4")
    assert "n/m: only n of m runs have the figure" in in_short(made)
    assert "n/m" not in in_short(rows(4, {"a": 0.9}))
    plot(made, "nothing blamed", [tmp_path / "plot.png"])


def test_a_degraded_seed_is_in_no_mean_and_is_said_with_what_was_lost(tmp_path: Path) -> None:
    made = rows(4, {"a": 0.9, "c": 0.7})
    whole = in_short(made)
    assert "means of 4 runs with" in whole and "degraded" not in whole
    made["degraded"][2:4] = ["the controller was 9.9 s late"] * 2  # seed 1
    made["tries"] = np.array([1, 1, 3, 3, 2, 2, 1, 1])
    made["f1"] = made["f1"].copy()
    made["f1"][2:4], made["lost_f1"][2:4] = (0.25, 0.5), (0.75, 1.0)
    cells = {row[0].text: row[1].value for row in _every(comparison_cells(made))}
    assert cells["a"] == pytest.approx(made["f1"][[0, 4, 6]].mean())
    messages = in_short(made).splitlines()
    assert messages[0].startswith("means of 3 runs, 1 degraded left out with")
    assert "seed 2: 2 tries, the earlier ones were degraded" in messages
    (line,) = (each for each in messages if each.startswith("seed 1: degraded in 3 of 3 tries"))
    assert "(the controller was 9.9 s late)" in line
    assert line.endswith("really lost packets: a 0.250 / 0.750, c 0.500 / 1.000")
    plot(made, "one degraded", [tmp_path / "plot.png"])
    made["degraded"] = ["late"] * 8  # no mean is left
    assert {row[1].text for row in _every(comparison_cells(made))} == {"– 0/0"}
    assert in_short(made).startswith("means of 0 runs, 4 degraded left out")
    plot(made, "all degraded", [tmp_path / "plot.png"])


_SHARES = ("precision", "recall", "f1", "accuracy", "class_f1", "best_f1", "undirected_f1")


def rows(seeds: int, f1: dict[str, float]) -> dict:
    rng = np.random.default_rng(0)
    names = [name for _ in range(seeds) for name in f1]
    n = len(names)
    value = np.clip([f1[name] + rng.normal(0, 0.05) for name in names], 0, 1)
    return {
        "seed": np.repeat(np.arange(seeds), len(f1)),
        "method": names,
        "bench": ["project" if name == "a" else "published" for name in names],
        "own_name": [""] * n,
        "unranked": np.zeros(n, int),
        "native": ["undirected" if name == "b" else "directed" for name in names],
        "faulty": np.full(n, 3),
        **dict.fromkeys(_SHARES, value),
        "unobserved": np.zeros(n),
        "average_precision": value,
        "seconds": np.full(n, 0.5),
        "telemetry_bytes": np.full(n, 100),
        "probe_packets": np.full(n, 1234),
        "fed": np.where(np.array(names) == "b", 0.5, 1.0),
        "parameters": ["p=1.0"] * n,
        "parameters_from": ["paper" if name == "b" else "default" for name in names],
        "found_at": [np.array([1, 2, 5]) if i % 2 else np.zeros(0, int) for i in range(n)],
        "lost_f1": np.minimum(value + 0.2, 1),
        "fabric_f1": np.full(n, np.nan),
        "degraded": [""] * n,
        "tries": np.ones(n, int),
    }


@pytest.mark.parametrize("seeds", [1, 2, 20])
def test_table_and_plot(tmp_path: Path, seeds: int) -> None:
    methods = {"a": 0.9, "b": 0.5} | {f"method-of-name-{i}": 0.7 for i in range(10)}
    made = rows(seeds, methods)
    console = Console(width=80)
    with console.capture() as captured:
        console.print(comparison_table(made))
    lines = captured.get().splitlines()
    assert len(lines) == 2 + len(methods) + 3, "a heading above each block, and a line between"
    assert lines[2].strip() == "as published:" and lines[-2].strip() == "this project's:"
    assert lines[3].startswith("b * !") and "0.50" in lines[3]
    assert lines[-1].startswith("a ") and ("–" in lines[-1]) == (seeds > 1)
    assert max(map(len, lines)) <= 80 and "…" not in captured.get()
    plot(made, "a title", [tmp_path / "plot.png"])
    assert (tmp_path / "plot.png").stat().st_size > 20_000
    first = (tmp_path / "plot.png").read_bytes()
    plot(made, "a title", [tmp_path / "plot.png"])
    assert (tmp_path / "plot.png").read_bytes() == first
