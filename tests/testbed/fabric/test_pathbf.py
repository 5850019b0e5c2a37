# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric import pathbf
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pathbf import (
    BITS,
    HASHES,
    PathBfError,
    SegmentDecoder,
    bloom_mask,
    switch_ids,
    theorem1,
)


def random_ids(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 1 << 48, shape, dtype=np.uint64)


def all_bits_set(encoded: int, wanted: int) -> float:
    """P(``wanted`` uniform bits are all among those set by ``encoded`` uniform insertions).

    Theorem 1 puts 1 - e^(-encoded / b) for the share of set bits; here the number of set bits has
    its own distribution.
    """
    occupied = np.zeros(BITS + 1)
    occupied[0] = 1.0
    for _ in range(encoded):
        n = np.arange(BITS + 1)
        stay = occupied * n / BITS
        grow = occupied * (1 - n / BITS)
        occupied = stay
        occupied[1:] += grow[:-1]
    return float((occupied * (np.arange(BITS + 1) / BITS) ** wanted).sum())


def test_mask_has_one_to_three_bits():
    mask = bloom_mask(random_ids(np.random.default_rng(1), 10000))
    bits = np.bitwise_count(mask)
    assert bits.min() >= 1 and bits.max() == HASHES
    # three independent positions of 32 are all different in this share
    different = 31 * 30 / 32**2
    assert abs((bits == 3).mean() - different) < 4 * math.sqrt(different * (1 - different) / 10000)


def test_every_hash_is_uniform_and_the_pairs_are_independent():
    ids = random_ids(np.random.default_rng(2), 200_000)
    positions = [(ids * a + c) >> np.uint64(59) for a, c in zip(pathbf._A, pathbf._C, strict=True)]
    for position in positions:
        counts = np.bincount(position.astype(int), minlength=BITS)
        chi2 = ((counts - len(ids) / BITS) ** 2).sum() / (len(ids) / BITS)
        assert chi2 < 31 + 5 * math.sqrt(62)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        joint = np.bincount((positions[a] * BITS + positions[b]).astype(int), minlength=BITS**2)
        chi2 = ((joint - len(ids) / BITS**2) ** 2).sum() / (len(ids) / BITS**2)
        assert chi2 < 1023 + 5 * math.sqrt(2046)


def test_theorem1_gives_the_papers_number():
    assert theorem1(5) == pytest.approx(2.85e-5, rel=0.01)


@pytest.mark.parametrize(("h", "samples"), [(3, 200_000), (4, 1_000_000), (5, 4_000_000)])
def test_measured_failures_agree_with_theorem1(h, samples):
    """One other segment that shares only the ends, with random IDs: the theorem's own event."""
    rng = np.random.default_rng(3)
    failures, done = 0, 0
    while done < samples:
        n = min(samples - done, 500_000)
        masks = bloom_mask(random_ids(rng, n * (2 * h - 3))).reshape(n, 2 * h - 3)
        path_bf = np.bitwise_or.reduce(masks[:, : h - 1], axis=1)
        other = np.bitwise_or.reduce(masks[:, h - 1 :], axis=1)
        failures += np.count_nonzero(other & ~path_bf == 0)
        done += n
    exact = all_bits_set((h - 1) * HASHES, (h - 2) * HASHES)
    assert abs(failures / samples - exact) < 4 * math.sqrt(exact / samples)
    # the theorem replaces a mean of powers by the power of a mean, which is a little less
    assert theorem1(h) < 1.1 * exact and exact < 2.0 * theorem1(h)


def test_undecodable_rate_of_a_fat_tree():
    """Two paths through the same aggregation switches differ in the core switch alone.

    So a K=4 segment between pods has one alternative with m bits at stake and two with 3 m, while
    the theorem speaks of 3 m only. The rate over random IDs is the first one's.
    """
    topology = FatTree(4)
    segments = topology.segments("tor")
    between = (segments.switches >= 0).sum(axis=1) == 4
    rng = np.random.default_rng(4)
    rates = []
    for _ in range(400):
        decoder = SegmentDecoder(topology, segments, random_ids(rng, topology.n_switches))
        failed = np.zeros(len(segments), bool)
        failed[decoder.undecodable()] = True
        rates.append(failed[between].mean())
    near, far = all_bits_set(12, 3), all_bits_set(12, 9)
    error = np.std(rates) / math.sqrt(len(rates))
    assert near - 4 * error < np.mean(rates) < near + 2 * far + 4 * error


def test_same_core_pairs_share_no_ends_so_tor_core_segments_are_unambiguous():
    topology = FatTree(4)
    segments = topology.segments("tor+core")
    decoder = SegmentDecoder(
        topology, segments, random_ids(np.random.default_rng(5), topology.n_switches)
    )
    tiers = topology.tier[segments.upstream] + topology.tier[segments.downstream]
    assert (tiers[decoder.undecodable()] == 0).all()


@pytest.mark.parametrize(
    ("k", "monitors"),
    [(4, "tor"), (4, "tor+core"), (4, "tor+agg"), (4, "tor+50%core"), (8, "tor+core")],
)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_drawn_ids_decode_every_segment(k, monitors, seed):
    topology = FatTree(k)
    segments = topology.segments(monitors)
    ids = switch_ids(topology, segments, seed)
    assert (ids >> np.uint64(40) & np.uint64(3) == 2).all() and (ids < 1 << 48).all()
    decoder = SegmentDecoder(topology, segments, ids)
    assert not len(decoder.undecodable())
    decoded = decoder.decode(segments.downstream, decoder.path_bf)
    assert (decoded == np.arange(len(segments))).all()


def test_k8_with_tor_monitors_is_decodable():
    topology = FatTree(8)
    segments = topology.segments("tor")
    decoder = SegmentDecoder(topology, segments, switch_ids(topology, segments, 7))
    assert not len(decoder.undecodable())


def test_k12_with_tor_monitors_is_decodable_by_bits_of_each_tier():
    topology = FatTree(12)
    segments = topology.segments("tor")
    ids = switch_ids(topology, segments, 7)
    assert not len(SegmentDecoder(topology, segments, ids).undecodable())
    used = [np.bitwise_or.reduce(bloom_mask(ids[topology.tier == tier])) for tier in range(3)]
    assert [int(np.bitwise_count(bits)) for bits in used] == [11, 11, 10]
    assert used[0] & used[1] == used[0] & used[2] == used[1] & used[2] == 0


def test_ids_depend_on_the_seed_only():
    topology = FatTree(4)
    segments = topology.segments()
    assert (switch_ids(topology, segments, 5) == switch_ids(topology, segments, 5)).all()
    assert (switch_ids(topology, segments, 5) != switch_ids(topology, segments, 6)).any()


def test_path_bf_is_what_the_switches_write():
    topology = FatTree(4)
    segments = topology.segments("tor")
    ids = switch_ids(topology, segments, 1)
    masks = bloom_mask(ids)
    decoder = SegmentDecoder(topology, segments, ids)
    for s in range(len(segments)):
        carried = 0
        for switch in topology.link_src[segments.paths[s]]:
            carried |= int(masks[switch])
        assert decoder.path_bf[s] == carried


def test_unknown_fields_decode_to_none():
    topology = FatTree(4)
    segments = topology.segments()
    decoder = SegmentDecoder(topology, segments, switch_ids(topology, segments, 1))
    downstream = np.array([0, 0, topology.core(0), topology.agg(0, 0)], np.int32)
    field = np.array([0, 0xFFFFFFFF, 1, int(decoder.path_bf[0])], np.uint32)
    assert decoder.decode(downstream, field).tolist() == [-1] * 4
    assert decoder.decode(downstream[:0], field[:0]).tolist() == []


def test_ambiguous_fields_decode_to_none():
    topology = FatTree(4)
    segments = topology.segments()
    same = np.full(topology.n_switches, 0x020000000001, np.uint64)
    decoder = SegmentDecoder(topology, segments, same)
    assert (decoder.decode(segments.downstream, decoder.path_bf) == -1).all()
    assert len(decoder.undecodable())


def test_impossible_assignments_are_reported(monkeypatch):
    topology = FatTree(4)
    segments = topology.segments()
    monkeypatch.setattr(pathbf, "bloom_mask", lambda ids: np.ones(len(ids), np.uint32))
    with pytest.raises(PathBfError, match=r"use more MONITORS, such as tor\+core, or a smaller K"):
        switch_ids(topology, segments, 0)
