# SPDX-License-Identifier: Apache-2.0
"""The network without packets: what is sent arrives or is lost at a link, as its rate says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.faults.plan import Fault, FaultError, FaultPlan, FlowMatch, Ternary
from testbed.network.flow import link_loss, send
from tests.binomial import tail


@settings(deadline=None)  # the first call compiles
@given(st.data())
def test_packets_are_conserved(data: st.DataObject) -> None:
    links = data.draw(st.integers(1, 6))
    rates = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1))
    epochs = data.draw(st.integers(1, 3))
    loss = np.array(
        data.draw(st.lists(st.lists(rates, min_size=links, max_size=links), min_size=epochs,
                           max_size=epochs))
    )  # fmt: skip
    rows = data.draw(st.lists(st.lists(st.integers(0, links - 1), max_size=4), min_size=1))
    paths = Paths.from_padded(np.array([r + [-1] * (4 - len(r)) for r in rows]))
    n = len(rows)
    sent = np.array(data.draw(st.lists(st.integers(0, 10**9), min_size=n, max_size=n)))
    epoch = np.array(data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)))
    got = send(loss, paths, sent, np.random.default_rng(1), epoch=epoch)
    assert got.lost.sum() == got.drops.sum()
    assert ((got.lost >= 0) & (got.lost <= sent)).all()
    assert ((got.drops >= 0) & (got.drops <= got.packets)).all()
    for i, row in enumerate(rows):
        rate = loss[min(epoch[i], epochs - 1)][row]
        assert got.lost[i] == 0 or rate.any()
        assert got.lost[i] == sent[i] or not (rate == 1).any()


def test_what_a_link_loses_does_not_reach_the_next() -> None:
    loss = np.array([[0.3, 0.0, 0.5, 1.0, 0.2]])
    paths = Paths.from_padded(np.array([[0, 1, 2, 3, 4]]))
    got = send(loss, paths, np.array([100_000]), np.random.default_rng(2))
    arriving = 100_000 - np.concatenate(([0], np.cumsum(got.drops)[:-1]))
    assert got.packets.tolist() == arriving.tolist()
    assert got.packets[4] == got.drops[4] == 0


def test_each_link_loses_as_its_rate_says() -> None:
    topology, rng = FatTree(6), np.random.default_rng(3)
    loss = np.where(rng.random(topology.n_links) < 0.2, rng.random(topology.n_links), 1e-4)
    src = rng.integers(topology.n_tors, size=20_000, dtype=np.int32)
    dst = rng.integers(topology.n_tors, size=20_000, dtype=np.int32)
    paths = Ecmp(topology).draw(src, dst, rng)
    got = send(loss[None, :], paths, rng.integers(1, 2000, 20_000), rng)
    assert tail(got.drops, got.packets, loss).min() > 0.5e-3 / topology.n_links


def test_rows_may_share_a_path() -> None:
    paths = Paths.from_padded(np.array([[0], [1]]))
    loss = np.array([[1.0, 0.0]])
    got = send(loss, paths, np.array([1, 2, 3]), np.random.default_rng(0), np.array([0, 1, 0]))
    assert got.lost.tolist() == [1, 0, 3]
    with pytest.raises(ValueError, match="3 rows, but 2 paths"):
        send(loss, paths, np.array([1, 2, 3]), np.random.default_rng(0))


def test_noise_differs_from_link_to_link() -> None:
    topology = FatTree(4)
    plan = FaultPlan((Fault(3, 0.25),))
    noise = np.linspace(1e-6, 1e-4, 64)
    loss = link_loss(topology, plan, 10, 1.0, noise)
    assert loss.shape == (1, 64) and loss[0, 3] == 0.25
    assert (np.delete(loss[0], 3) == np.delete(noise, 3)).all()


def test_a_schedule_counts_for_its_part_of_each_epoch() -> None:
    plan = FaultPlan((Fault(2, 0.4, schedule=((0.5, 1.25), (1.5, 9.0))), Fault(7, 1.0)))
    loss = link_loss(FatTree(4), plan, 3, 1.0)
    assert loss[:, 2] == pytest.approx([0.2, 0.3, 0.4])
    assert (loss[:, 7] == 1).all() and not loss[:, [0, 1, 3]].any()


def test_a_fault_of_some_flows_is_refused() -> None:
    plan = FaultPlan((Fault(0, 1.0, match=FlowMatch(dst_port=Ternary(1, 3))),))
    with pytest.raises(FaultError, match="no packet headers: use BACKEND=virtual"):
        link_loss(FatTree(4), plan, 1, 1.0)
