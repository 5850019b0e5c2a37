# SPDX-License-Identifier: Apache-2.0
"""What observations can tell of links: worked examples, unions of kinds, and what must hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.telemetry.identifiability import Identifiability
from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts
from testbed.fabric.clos import Fabric, clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets, pointers

K4 = FatTree(4)
FABRICS = (
    K4,
    leaf_spine(4, 1),
    FatTree(6).without([0, 9, 60]),
    clos(2, 2, 2, 2, wiring="complete"),
    clos(3, 2, 2, 3, wiring="complete").without([1, 14, 20]),
)


def paths_of(rows: Sequence[Sequence[int]]) -> Paths:
    links = [link for row in rows for link in row]
    return Paths(pointers([len(row) for row in rows]), np.array(links, np.int32))


def probes(rows: Sequence[Sequence[int]], sent: int = 10) -> Probes:
    counts = np.full(len(rows), sent)
    return Probes(paths_of(rows), counts, np.zeros_like(counts))


def groups(tells: Identifiability) -> set[tuple[int, ...]]:
    """The classes of several links."""
    found = (np.flatnonzero(tells.classes == each) for each in np.unique(tells.classes))
    return {tuple(own.tolist()) for own in found if len(own) > 1}


def test_links_on_the_same_paths_are_a_class() -> None:
    tells = Identifiability.of(8, [probes([[0, 3], [0, 3, 4], [6, 5]])])
    assert groups(tells) == {(0, 3), (5, 6)}
    assert np.flatnonzero(tells.observed).tolist() == [0, 3, 4, 5, 6]
    assert tells.classes.tolist() == [0, 1, 2, 0, 4, 5, 5, 7]
    assert tells.size.tolist() == [2, 1, 1, 2, 1, 2, 2, 1]


def test_rows_without_packets_observe_nothing() -> None:
    tells = Identifiability.of(4, [probes([[0, 1]], sent=0), probes([[2]])])
    assert np.flatnonzero(tells.observed).tolist() == [2] and not groups(tells)


def test_what_any_kind_separates_is_separate() -> None:
    both = [probes([[0, 1]]), probes([[0, 2]])]
    assert groups(Identifiability.of(4, both[:1])) == {(0, 1)}
    assert groups(Identifiability.of(4, both[1:])) == {(0, 2)}
    assert not groups(Identifiability.of(4, both))


def test_segments_tie_links_that_share_them() -> None:
    """Between ToRs alone all links of a path are apart; with one segment alone its two are one."""
    parts = K4.segments()
    sent = np.zeros((2, len(parts)), np.int64)
    sent[1] = 100
    assert not groups(Identifiability.of(K4.n_links, [SegmentCounts(parts, sent, sent * 0)]))
    sent[1, 1:] = 0
    tells = Identifiability.of(K4.n_links, [SegmentCounts(parts, sent, sent * 0)])
    assert groups(tells) == {tuple(sorted(parts.paths[0].tolist()))}


def test_bounced_probes_tell_undirected_links_apart() -> None:
    tells = Identifiability.of(4, [probes([[0, 1]]), probes([[0, 2, 3, 1]])])
    assert groups(tells) == {(0, 1), (2, 3)}
    assert not groups(tells.undirected) and tells.undirected.observed.all()


def test_undirected_links_are_tied_by_either_direction() -> None:
    tells = Identifiability.of(6, [probes([[0, 3], [1], [2], [5]])])
    assert groups(tells) == {(0, 3)} and groups(tells.undirected) == {(0, 1)}
    assert tells.undirected.observed.tolist() == [True, True, True]


def test_connections_observe_what_their_hosts_watched() -> None:
    one = np.zeros(1, np.int32)
    watched = PairSets.between(K4, np.array([0, 1, 1]), np.array([1, 0, 1]))
    part = Connections(one, one + 1, np.array([3]), paths_of([[0, 5]]), np.array([True]), 0)
    tells = Identifiability.of(K4.n_links, [part, watched])
    inside = {
        K4.link(f"tor0_{a}->agg0_{b}") ^ way for a in (0, 1) for b in (0, 1) for way in (0, 1)
    }
    assert set(np.flatnonzero(tells.observed).tolist()) == inside | {0, 5}
    assert groups(tells) == {(0, 5)}


@pytest.mark.parametrize("fabric", FABRICS)
def test_pairs_of_tors_tell_what_their_listed_paths_tell(fabric: Fabric) -> None:
    none = PathSets.known(paths_of([]))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        src, dst = (rng.integers(0, fabric.n_tors, 6).astype(np.int32) for _ in range(2))
        sent = rng.integers(0, 3, 20)
        of = rng.integers(0, 6, 20).astype(np.int32)
        pairs = Flows(PairSets(fabric, src, dst, none), of, sent, sent * 0)
        listed = Flows(PairSets(fabric, src, dst, none).expanded(), of, sent, sent * 0)
        ours, theirs = (Identifiability.of(fabric.n_links, [each]) for each in (pairs, listed))
        assert ours.classes.tolist() == theirs.classes.tolist()
        assert ours.observed.tolist() == theirs.observed.tolist()


def test_classes_of_hidden_paths_of_a_fat_tree() -> None:
    """The uplinks of a ToR are alike, those of a pod's aggregation layer, and the same downwards
    (Flock, section 7.6)."""
    fabric = FatTree(8)
    src, dst = (a.ravel().astype(np.int32) for a in np.indices((fabric.n_tors, fabric.n_tors)))
    tells = Identifiability.of(fabric.n_links, [PairSets.between(fabric, src, dst)])
    assert tells.observed.all() and not groups(tells), "what was watched tells nothing apart"
    none = PathSets.known(paths_of([]))
    sent = np.ones(len(src), np.int64)
    flows = Flows(PairSets(fabric, src, dst, none), np.arange(len(src), dtype=np.int32), sent, sent)
    tells = Identifiability.of(fabric.n_links, [flows])
    assert len(np.unique(tells.classes)) == 2 * fabric.n_tors + 2 * fabric.n_pods


# ---- what must hold --------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 9), max_size=5, unique=True), max_size=8))
@settings(max_examples=150, deadline=None)
def test_classes_are_those_of_equal_sets_of_paths(rows: list[list[int]]) -> None:
    tells = Identifiability.of(10, [probes(rows)])
    on = [frozenset(i for i, row in enumerate(rows) if link in row) for link in range(10)]
    assert tells.observed.tolist() == [bool(own) for own in on]
    for a in range(10):
        alike = [b for b in range(10) if on[b] == on[a] and (on[a] or a == b)]
        assert tells.classes[a] == alike[0] and tells.size[a] == len(alike)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True), min_size=1),
    st.integers(0, 9),
)
@settings(max_examples=100, deadline=None)
def test_a_link_in_series_joins_the_class_of_its_neighbour(
    rows: list[list[int]], which: int
) -> None:
    """Link 10 is met wherever ``which`` is, and nowhere else."""
    before = Identifiability.of(11, [probes(rows)])
    after = Identifiability.of(11, [probes([[*row, *[10] * (which in row)] for row in rows])])
    assert before.classes[:10].tolist() == after.classes[:10].tolist()
    if before.observed[which]:
        assert after.classes[10] == after.classes[which]
    assert after.observed[10] == before.observed[which]


@given(st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_rows_split_and_shuffled_and_links_renumbered_tell_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.choice(12, rng.integers(1, 5), replace=False).tolist() for _ in range(9)]
    number = rng.permutation(12)
    more = [rows[i] for i in rng.permutation(np.repeat(np.arange(9), rng.integers(1, 3, 9)))]
    moved = [[int(number[link]) for link in row] for row in more]
    ours = groups(Identifiability.of(12, [probes(rows)]))
    theirs = groups(Identifiability.of(12, [probes(moved[:4]), probes(moved[4:])]))
    assert theirs == {tuple(sorted(int(number[link]) for link in own)) for own in ours}
