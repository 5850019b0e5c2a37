"""Incidence: both directions of look-up say the same, whatever the paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.solvers.incidence import Incidence
from testbed.fabric.paths import Paths

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
    assert not incidence.paths_with(none).any()
    assert incidence.paths_with(~none).tolist() == [bool(p) for p in paths]
    every = np.ones(incidence.n_paths, np.bool_)
    assert incidence.links_on(every).all() and not incidence.links_on(~every).any()
    on_all = np.diff(incidence.link_ptr)
    assert incidence.paths_on(every).tolist() == on_all.tolist()
    assert not incidence.paths_on(~every).any()
    if len(paths) == 3:
        assert incidence.paths_on(np.array([False, True, True])).tolist() == [1, 0]
        assert incidence.paths_with(incidence.link_ids == 5).tolist() == [True, False, False]
        assert incidence.links_on(np.array([False, False, True])).tolist() == [True, False]
