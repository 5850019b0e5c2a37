# SPDX-License-Identifier: Apache-2.0
"""What the meters of a run without packets count."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.segments import segment_share
from testbed.measurements.canary.metering import Metered, meter, meter_upload
from testbed.measurements.canary.selection import SelectionParameters
from testbed.record.run import RunDirectory
from testbed.traffic.generator import FlowProcess, flow_process
from tests.conftest import SMALL

K4 = FatTree(4)


def process(load: float = 0.3, workload: str = "hadoop") -> FlowProcess:
    return flow_process(K4, workload, load, np.random.default_rng(1))


def counted(parameters: SelectionParameters = SelectionParameters(), **changes) -> Metered:
    n = 4000
    arguments = {
        "process": process(),
        "share": np.full(n, 1 / 64),
        "success": np.ones((1, n)),
        "epochs": 4,
        "epoch_s": 0.1,
        "seed": 3,
    } | changes
    return meter(parameters=parameters, **arguments)


def test_counts_are_those_of_the_packet_network(finished_run: RunDirectory) -> None:
    """Epochs after the first, over segments that lose little: within 15 %."""
    config = finished_run.config
    ecmp, traffic = Ecmp(K4), process(SMALL.load)
    parts = K4.segments()
    links = finished_run.table("links")
    healthy = ~links["faulty"][parts.paths.padded()].any(axis=1)
    core = healthy & ((K4.tier[parts.upstream] == 2) | (K4.tier[parts.downstream] == 2))
    table = finished_run.table("segments")
    theirs = np.zeros((config["epochs"], len(parts)))
    theirs[table["epoch"], table["segment"]] = table["sent"]
    ours = np.concatenate(
        [
            meter(
                traffic,
                segment_share(ecmp, traffic.pair_share(), parts),
                np.ones((1, len(parts))),
                config["epochs"],
                SMALL.epoch_ms / 1000,
                SelectionParameters(),
                seed,
            ).sent
            for seed in range(20)
        ]
    )
    assert ours[:, core].mean() == pytest.approx(theirs[:, core].mean(), rel=0.15)


def test_equal_seeds_count_equal_packets() -> None:
    assert (counted().sent == counted().sent).all()
    assert (counted().sent != counted(seed=4).sent).any()


def test_no_more_is_counted_than_is_sent() -> None:
    offered = process().arrivals * 0.1 / 64 * process().sizes.mean / 1460
    everything = counted(SelectionParameters(alpha=10**9, beta=4096, delta=4096, eta=0))
    some = counted(SelectionParameters(alpha=10**9, beta=4096, delta=4096, eta=50))
    assert some.sent.mean() < everything.sent.mean() < 1.1 * offered
    assert everything.sent.mean() > 0.6 * offered


def test_a_satisfied_controller_selects_no_more_flows() -> None:
    """With nothing wanted, only the first request is served, and its flows end one by one."""
    content = counted(SelectionParameters(alpha=0, beta=0), epochs=6)
    eager = counted(SelectionParameters(alpha=10**9, beta=4096), epochs=6)
    assert content.sent[0].mean() == pytest.approx(eager.sent[0].mean(), rel=0.1)
    assert (np.diff(content.sent.mean(axis=1)) < 0).all()
    assert content.sent[5].mean() < 0.5 * eager.sent[5].mean()


def test_delta_bounds_the_flows_of_a_request() -> None:
    assert counted(SelectionParameters(delta=2), epochs=1).flows.max() == 2


def test_flows_with_rules_are_summed_over_the_epochs() -> None:
    one, more = (counted(SelectionParameters(delta=2), epochs=epochs) for epochs in (1, 3))
    assert (one.watched == one.installed).all()  # what is selected in an epoch has a rule in it
    assert (more.watched >= more.installed).all() and (more.watched > more.installed).any()


def test_what_lets_nothing_through_is_not_observed() -> None:
    success = np.ones((1, 4000))
    success[0, ::2] = 0.0
    success[0, 1::4] = 0.2
    sent = counted(success=success).sent
    assert not sent[:, ::2].any()
    assert 0 < sent[:, 1::4].mean() < 0.9 * sent[:, 3::4].mean()


def test_no_traffic_no_packets() -> None:
    assert not counted(share=np.zeros(4000)).sent.any()


def test_meters_grow_with_the_flows_they_hold() -> None:
    parts = K4.segments()
    none = np.zeros(len(parts), np.int32)
    few, many = (
        meter_upload(Metered(none[None], np.full(len(parts), n), none, none, none, none), parts)
        for n in (1, 200)
    )
    assert few == 12 * 3 * 1024 * (137 + 169) // 8
    assert many > 5 * few
