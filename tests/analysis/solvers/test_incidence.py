"""Incidence: both directions of look-up say the same, whatever the paths."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.solvers import incidence as incidence_module
from analysis.solvers import parts
from analysis.solvers.coordinate_descent import coordinate_descent
from analysis.solvers.incidence import Incidence
from analysis.solvers.log_least_squares import log_least_squares
from analysis.solvers.stages import PathRates, solve_stages
from testbed.fabric.paths import Paths, pointers

PATHS = st.lists(st.lists(st.integers(0, 15), max_size=6), max_size=20)


def csr(paths):
    ptr = np.concatenate(([0], np.cumsum([len(p) for p in paths]))).astype(np.int64)
    return Paths(ptr, np.array([link for p in paths for link in p], np.int32))


@settings(max_examples=200, deadline=None)
@given(PATHS, st.booleans())
def test_against_sets(paths, undirected):
    incidence = Incidence.of(csr(paths), undirected=undirected)
    sets = [sorted({link >> undirected for link in p}) for p in paths]
    ids = sorted(set().union(*sets))
    assert incidence.link_ids.tolist() == ids
    assert (incidence.n_paths, incidence.n_links) == (len(paths), len(ids))
    for j, links in enumerate(sets):
        local = incidence.links[incidence.path_ptr[j] : incidence.path_ptr[j + 1]]
        assert incidence.link_ids[local].tolist() == links
    for i, link in enumerate(ids):
        on = incidence.paths[incidence.link_ptr[i] : incidence.link_ptr[i + 1]]
        assert on.tolist() == [j for j, links in enumerate(sets) if link in links]


@pytest.mark.parametrize("paths", [[], [[]], [[3, 5], [], [3]]])
def test_marking(paths):
    incidence = Incidence.of(csr(paths))
    none = np.zeros(incidence.n_links, np.bool_)
    assert not incidence.rows_with(none).any()
    assert incidence.rows_with(~none).tolist() == [bool(p) for p in paths]
    every = np.ones(incidence.n_paths, np.bool_)
    assert incidence.links_on(every).all() and not incidence.links_on(~every).any()
    on_all = np.diff(incidence.link_ptr)
    assert incidence.rows_on(every).tolist() == on_all.tolist()
    assert not incidence.rows_on(~every).any()
    if len(paths) == 3:
        assert incidence.rows_on(np.array([False, True, True])).tolist() == [1, 0]
        assert incidence.rows_with(incidence.link_ids == 5).tolist() == [True, False, False]
        assert incidence.links_on(np.array([False, False, True])).tolist() == [True, False]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), large=st.sampled_from([1, 10**9]))
def test_a_path_observed_often_is_as_many_equal_paths(seed, large):
    """To every solver, bit for bit, also in parts that end among a path's observations."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(12, rng.integers(1, 5), replace=False).tolist() for _ in range(30)]
    times = rng.integers(1, 4, len(rows))
    often = [path for path, n in zip(rows, times.tolist(), strict=True) for _ in range(n)]
    every = Incidence.of(csr(often))
    once = Incidence.of(csr(rows), row_ptr=pointers(times))
    sent = rng.integers(1, 100, len(often))
    lost = rng.binomial(sent, rng.choice([0.0, 0.3], len(often)))
    y, used = 1 - lost / sent, rng.random(len(often)) < 0.8
    rates = PathRates(y, sent, lost > 0)
    links = rng.random(every.n_links) < 0.3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incidence_module, "LARGE", large)
        patch.setattr(parts, "FEW", large)
        first, second = (
            [
                *astuple(coordinate_descent(one, y, sent, penalty=0.1, used=used)),
                log_least_squares(one, y + 0.01, used=used),
                *solve_stages(one, rates),
                one.rows_with(links),
                one.links_on(used),
                one.rows_on(used),
            ]
            for one in (every, once)
        )
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a, b)
