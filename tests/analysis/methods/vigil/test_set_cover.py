# SPDX-License-Identifier: Apache-2.0
"""The programs and the greedy against exhaustive search, and as methods on a network."""

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import Bounds, milp

from analysis.evaluation.metrics import score
from analysis.methods.vigil.set_cover import (
    BinaryProgram,
    IntegerProgram,
    MaxCoverage,
    Routing,
    binary_program,
    integer_program,
    max_coverage,
)
from analysis.telemetry.telemetry import Connections, MissingTelemetry, Telemetry
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths


def routing(rows, lost=None):
    """Of connections given as lists of links."""
    links = np.unique([link for row in rows for link in row]).astype(np.int32)
    dense = np.array([[link in row for link in links] for row in rows], np.float64)
    lost = np.ones(len(rows), np.int64) if lost is None else np.array(lost, np.int64)
    return Routing(sparse.csr_array(dense), links, lost)


@st.composite
def problems(draw):
    n_links = draw(st.integers(1, 8))
    row = st.lists(st.integers(0, n_links - 1), min_size=1, max_size=3, unique=True)
    rows = draw(st.lists(row, min_size=1, max_size=10))
    lost = draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
    return rows, lost


def fewest(rows):
    """By trying all sets of links, the smallest first."""
    links = sorted({link for row in rows for link in row})
    for size in range(len(links) + 1):
        for chosen in itertools.combinations(links, size):
            if all(set(row) & set(chosen) for row in rows):
                return size
    raise AssertionError("all links cover all rows")


def equation_4(problem):
    """The integer program as printed, a binary variable counting each p > 0: its optimum."""
    (n, m), total = problem.matrix.shape, problem.lost.sum()
    ones, zeros = np.ones(m), np.zeros(m)
    most: Any = np.concatenate((total * ones, ones))  # SciPy says float, and takes arrays
    counted = sparse.hstack((sparse.eye_array(m), -total * sparse.eye_array(m)))
    explained = sparse.hstack((problem.matrix, sparse.csr_array((n, m))))
    solution = milp(
        np.concatenate((zeros, ones)),
        integrality=np.ones(2 * m),
        bounds=Bounds(0, most),
        constraints=[
            (explained, problem.lost, np.inf),
            (np.concatenate((ones, zeros))[None, :], total, total),
            (counted, -np.inf, 0),
        ],
    )
    return round(solution.fun)


def covers(cover, rows):
    return all(set(row) & set(cover.links.tolist()) for row in rows)


@settings(max_examples=80, deadline=None)
@given(problem=problems())
def test_against_exhaustive_search(problem):
    rows, lost = problem
    least = fewest(rows)
    given_ = routing(rows, lost)
    binary, integer, greedy = (
        solve(given_) for solve in (binary_program, integer_program, max_coverage)
    )
    for cover in (binary, integer, greedy):
        assert covers(cover, rows)
        assert (np.diff(cover.links) > 0).all() and (cover.weight > 0).all()
    assert len(binary.links) == len(integer.links) == least
    assert binary.proven and integer.proven
    # Chvatal's bound on the greedy
    degree = np.asarray(given_.matrix.sum(axis=0)).max()
    assert least <= len(greedy.links) <= least * sum(1 / i for i in range(1, int(degree) + 1))
    assert greedy.weight.sum() == len(rows)


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_the_integer_program_solves_equation_4(problem):
    rows, lost = problem
    given_ = routing(rows, lost)
    cover = integer_program(given_)
    packets = np.zeros(len(given_.links), np.int64)
    packets[np.searchsorted(given_.links, cover.links)] = cover.weight
    assert (given_.matrix @ packets >= given_.lost).all()
    assert packets.sum() == sum(lost)
    assert len(cover.links) == equation_4(given_)
    assert (packets <= given_.matrix.T @ given_.lost).all()


def test_the_greedy_is_greedy():
    """Two links would do (0 and 1), but link 2 explains most connections at first."""
    rows = [[0, 2], [0, 2], [1, 2], [1, 2], [0], [1]]
    greedy = max_coverage(routing(rows))
    assert greedy.links.tolist() == [0, 1, 2]
    assert greedy.weight.tolist() == [1, 1, 4]
    assert binary_program(routing(rows)).links.tolist() == [0, 1]


def test_figure_15():
    """Appendix B: link 2-4 drops, flows 1-2 (over 1-4, 4-2) and 3-2 (over 3-4, 4-2) suffer."""
    one_4, four_2, three_4 = range(3)
    for solve in (binary_program, integer_program, max_coverage):
        cover = solve(routing([[one_4, four_2], [three_4, four_2]], [3, 2]))
        assert cover.links.tolist() == [four_2]
    assert integer_program(routing([[0, 1], [2, 1]], [3, 2])).weight.tolist() == [5]


METHODS = (BinaryProgram, IntegerProgram, MaxCoverage)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_without_noise_they_find_the_faulty_links(synthetic, method):
    found = []
    for seed in range(4):
        world = synthetic.make_world(
            k=4, seed=seed, flows=3000, partial=0.1, packets=1, epochs=1, probes=False
        )
        result = method().localize(world.telemetry)
        assert result.method == method.base and result.native == "directed"
        found.append(score(result.flagged, world.faulty, world.topology)["directed"].f1)
        causes = result.connection_cause
        assert np.isin(causes[causes >= 0], result.flagged).all()
        lossy = world.telemetry.connections.lost > 0
        assert (causes[lossy] >= 0).all()
        assert ((result.score > 0) == np.isin(np.arange(len(result.score)), result.flagged)).all()
    assert np.mean(found) > 0.9


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_they_blame_links_for_noise(synthetic, method):
    """Every drop must be explained: what 007 holds against them."""
    world = synthetic.make_world(k=4, seed=1, share=0, noise=2e-5, flows=4000, probes=False)
    assert (world.telemetry.connections.lost > 0).sum() > 0
    assert len(method().localize(world.telemetry).flagged) > 0


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_nothing_lost_and_nothing_measured(method):
    topology, none = FatTree(4), np.zeros(0, np.int32)
    empty = Connections(
        none,
        none,
        np.zeros(0, np.int64),
        Paths(np.zeros(1, np.int64), none),
        np.zeros(0, np.bool_),
        0,
    )
    telemetry = Telemetry(topology, "tor+core", connections=empty)
    result = method().localize(telemetry)
    assert len(result.flagged) == 0 and not result.score.any()
    assert method().telemetry_bytes(telemetry) == 0
    with pytest.raises(MissingTelemetry, match=method.base):
        method().localize(Telemetry(topology, "tor+core"))


@pytest.mark.parametrize("method", [BinaryProgram, IntegerProgram], ids=lambda m: m.name)
def test_out_of_time_it_takes_the_greedy_cover_and_says_so(monkeypatch, method):
    class Stopped:
        x, status = None, 1

    monkeypatch.setattr("scipy.optimize.milp", lambda *_, **__: Stopped())
    rows = [[0, 2], [0, 2], [1, 2], [1, 2], [0], [1]]
    with pytest.warns(RuntimeWarning, match=r"stopped after 60 s with 3 links"):
        cover = method().cover(routing(rows))
    assert cover.links.tolist() == [0, 1, 2] and not cover.proven


def test_the_greedy_needs_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MaxCoverage().cover(routing([[0]]))
