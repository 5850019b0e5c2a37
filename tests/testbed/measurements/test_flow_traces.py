# SPDX-License-Identifier: Apache-2.0
"""007's traces without packets."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.dataplane.adapted import COMPILED, IcmpLimit
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.traces.flow_traces import trace
from testbed.measurements.traces.path_discovery import host_rate_limit
from testbed.network.flow import send

EPOCH_S = 0.5
LASTING_S, UNTIL_S = 0.5, 6.0
K6 = FatTree(6)


class Run:
    """Flows over a fabric some of whose links lose packets, all that lost some traced."""

    def __init__(
        self,
        fabric: Fabric,
        loss: np.ndarray,
        flows: int = 3000,
        hosts: int | None = None,
        icmp: IcmpLimit = COMPILED,
    ) -> None:
        rng = np.random.default_rng(7)
        self.fabric, self.ecmp = fabric, Ecmp(fabric)
        self.host = rng.integers(hosts or fabric.n_hosts, size=flows).astype(np.int32)
        src = self.host // fabric.hosts_per_tor
        dst = (src + rng.integers(1, fabric.n_tors, flows)).astype(np.int32) % fabric.n_tors
        self.time_s = rng.random(flows) * 5
        self.paths = self.ecmp.draw(src, dst, rng)
        self.lost = send(loss[None, :], self.paths, np.full(flows, 50), rng).lost
        self.traces = trace(
            self.ecmp,
            loss[None, :],
            self.host,
            self.time_s,
            self.time_s + LASTING_S,
            self.paths,
            self.lost,
            epoch_s=EPOCH_S,
            until_s=UNTIL_S,
            per_s=host_rate_limit(fabric, 100),
            icmp=icmp,
            rng=rng,
        )


def losing(fabric: Fabric, share: float, rate: float) -> np.ndarray:
    rng = np.random.default_rng(11)
    return np.where(rng.random(fabric.n_links) < share, rate, 0.0)


@pytest.mark.parametrize(
    "fabric", [K6, leaf_spine(6, 4), FatTree(6).without([2, 33, 70])], ids=lambda f: f.title
)
def test_traces_are_the_beginning_of_the_path(fabric: Fabric) -> None:
    run = Run(fabric, losing(fabric, 0.1, 0.4))
    found, true = run.traces.paths, run.paths.take(run.traces.flow)
    assert (run.lost[run.traces.flow] > 0).all() and len(run.traces.flow) > 200
    rows, whole = found.padded(), true.padded()[:, : found.padded().shape[1]]
    assert ((rows == whole) | (rows == -1)).all()
    assert (run.traces.complete == (found.length == true.length)).all()
    assert 0.3 < run.traces.complete.mean() < 1
    assert (np.diff(run.traces.flow) > 0).all()


def test_nothing_is_missing_where_little_is_lost() -> None:
    run = Run(K6, losing(K6, 0.1, 0.02))
    assert run.traces.complete.mean() > 0.9


def test_a_dead_link_ends_the_trace_at_it_where_it_is_determined() -> None:
    """Downwards there is one way, so the link itself is named; upwards there are several."""
    for name, end in (("core0->agg1_0", 3), ("agg1_0->tor1_1", 4), ("tor0_0->agg0_1", 0)):
        loss = np.zeros(K6.n_links)
        loss[K6.link(name)] = 1.0
        run = Run(K6, loss, flows=4000)
        across = run.paths.take(run.traces.flow).length == 4
        assert across.any()
        assert (run.traces.paths.length[across] == end).all()


def test_hosts_keep_to_their_budget() -> None:
    run = Run(K6, losing(K6, 0.5, 0.4), flows=4000, hosts=6)
    limit = host_rate_limit(K6, 100)
    traced = np.bincount(run.host[run.traces.flow])
    assert (traced <= limit * UNTIL_S + 1).all()
    assert (traced > 0.9 * limit * UNTIL_S).all()  # those that are over the budget wait
    assert len(run.traces.flow) < (run.lost > 0).sum()
    assert run.traces.packets == 5 * len(run.traces.flow)


def test_switches_keep_to_theirs() -> None:
    """All traces end at one aggregation switch: it answers 13 in 131 ms, or about 100 a second."""
    topology = FatTree(4)
    loss = np.zeros(topology.n_links)
    loss[[topology.link(f"agg0_0->core{c}") for c in (0, 1)]] = 1.0
    run = Run(topology, loss, flows=40_000)
    from_pod = run.traces.paths.length[run.paths.take(run.traces.flow).length == 4]
    answered = (from_pod == 1).sum()
    assert len(from_pod) > answered
    assert answered <= 13 * (UNTIL_S / 0.131072 + 1)


def test_no_loss_no_traces() -> None:
    run = Run(K6, np.zeros(K6.n_links))
    assert len(run.traces.flow) == len(run.traces.paths) == run.traces.packets == 0
