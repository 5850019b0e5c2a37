# SPDX-License-Identifier: Apache-2.0
"""NetBouncer: device detection, links, the paper's setting."""

import itertools
from typing import Any

import numpy as np
import pytest

from analysis.evaluation.metrics import score
from analysis.methods.diagnosis import both_directions
from analysis.methods.netbouncer import NetBouncer, NetBouncerStage, bad_devices, good_paths
from analysis.solvers.incidence import Incidence
from analysis.telemetry.telemetry import Probes, Telemetry
from scenarios.papers.netbouncer_network import probing_plan, with_servers
from testbed.fabric.clos import leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree


def exact_probes(topology, loss, packets=1000):
    paths = Ecmp(topology).bounces()
    through = np.array([np.prod(1 - loss[paths[p]]) for p in range(len(paths))])
    sent = np.full(len(paths), packets, np.int64)
    return Probes(paths, sent, np.round(sent * (1 - through)).astype(np.int64))


def suspects(probes, topology):
    incidence = Incidence.of(probes.paths, undirected=True)
    good = good_paths(incidence, probes, 0.999)
    return np.flatnonzero(bad_devices(incidence, probes.sent > 0, good, topology))


def test_one_lossy_link():
    topology = FatTree(8)
    loss = np.zeros(topology.n_links)
    link = topology.link("agg3_1->core5")
    loss[link] = 0.4
    telemetry = Telemetry(topology, "tor+core", probes=exact_probes(topology, loss))
    result = NetBouncer().localize(telemetry)
    assert result.native == "undirected"
    assert result.flagged.tolist() == both_directions([link >> 1]).tolist()
    assert result.score.argmax() >> 1 == link >> 1
    assert NetBouncer().probe_packets(telemetry) == 1000 * topology.n_tors * topology.n_cores


@pytest.mark.parametrize("name", ["tor2_1", "agg0_0", "core3"])
def test_faulty_device(name):
    topology = FatTree(4)
    switch = topology.switch(name)
    loss = np.zeros(topology.n_links)
    loss[topology.links_of(switch)] = 0.2
    probes = exact_probes(topology, loss)
    assert suspects(probes, topology).tolist() == [switch]
    telemetry = Telemetry(topology, "tor+core", probes=probes)
    result = NetBouncer().localize(telemetry)
    assert result.flagged.tolist() == sorted(topology.links_of(switch).tolist())
    assert result.devices.tolist() == [switch]
    without = NetBouncer(device_detection=False).localize(telemetry)
    assert without.devices.tolist() == []
    if topology.tier[switch] == 1:  # no unique solution (section 6.3): some links stay unblamed
        assert len(without.flagged) < len(result.flagged)


def test_a_lucky_path_does_not_absolve_a_device():
    """All links of an aggregation switch lose half, but one of its 512 paths lost nothing."""
    tree = FatTree(16)
    fabric = with_servers(tree)
    switch = fabric.switch("agg3_2")
    loss = np.zeros(fabric.n_links)
    loss[fabric.links_of(switch)] = 0.5
    paths = probing_plan(fabric).paths
    hops = paths.links.reshape(-1, 6)[:, :3]
    lost = np.round(100 * (1 - (1 - loss[hops]).prod(axis=1))).astype(np.int64)
    lost[np.flatnonzero(lost)[0]] = 0
    probes = Probes(paths, np.full(len(paths), 100, np.int64), lost)
    telemetry = Telemetry(fabric, "none", probes=probes)
    assert NetBouncer().localize(telemetry).devices.tolist() == []
    result = NetBouncer(lucky_share=0.002).localize(telemetry)
    assert result.devices.tolist() == [switch]
    assert result.flagged.tolist() == sorted(fabric.links_of(switch).tolist())


def test_device_detection_does_not_flag_everything(synthetic):
    """10 % faulty links leave nearly every switch with a good path."""
    world = synthetic.make_world(k=8, seed=3, undirected=True, packets=1, epochs=1, flows=10)
    assert len(suspects(world.telemetry.probes, world.topology)) == 0


@pytest.mark.parametrize("packets", [100, 10_000, 1_000_000])
def test_noise_makes_no_device_a_suspect(synthetic, packets):
    """With many packets no path is without loss; with `path_noise` those of links above 0.999 are
    good all the same."""
    topology, rng = FatTree(8), np.random.default_rng(1)
    loss = rng.uniform(0, 0.0005, topology.n_links)
    broken = topology.switch("agg2_1")
    loss[topology.links_of(broken)] = 0.3
    probes = synthetic.bounce_probes(topology, loss, rng, packets=packets)
    assert suspects(probes, topology).tolist() == [broken]


MODELS = {
    "specialised": NetBouncer(),
    "l1": NetBouncer(model="l1"),
    "convex": NetBouncer(model="convex"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_models(name, rate):
    topology = FatTree(8)
    loss = np.zeros(topology.n_links)
    link = topology.link("core5->agg3_1")
    loss[link] = rate
    telemetry = Telemetry(topology, "tor+core", probes=exact_probes(topology, loss))
    result = MODELS[name].localize(telemetry)
    assert result.flagged.tolist() == [link ^ 1, link]
    if name != "specialised":  # draws every estimate towards 1, by lambda / 2n in its scale
        assert result.success[link] > 1 - rate


def test_l1_bends_estimates_where_the_paper_regulariser_does_not():
    """Section 6.4: as few false discoveries, but a higher error of the estimates."""
    topology, rng = FatTree(8), np.random.default_rng(5)
    edges = rng.choice(topology.n_edges, 13, replace=False)
    loss = np.zeros(topology.n_links)
    loss[2 * edges] = rng.uniform(0.2, 0.8, 13)
    telemetry = Telemetry(topology, "tor+core", probes=exact_probes(topology, loss))
    error = {}
    for name in ("specialised", "l1"):
        result = MODELS[name].localize(telemetry)
        assert result.flagged.tolist() == both_directions(edges).tolist()
        error[name] = ((result.success[2 * edges] - 1 + loss[2 * edges]) ** 2).sum()
    assert error["specialised"] < error["l1"] / 2


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_own_setting(share):
    """Section 6.1 on 16-port switches: 3,072 links, 2 failed devices, 64 paths a link."""
    tree, rng = FatTree(16), np.random.default_rng(7)
    fabric = with_servers(tree)
    faulty = np.zeros(fabric.n_edges, np.bool_)
    faulty[rng.choice(fabric.n_edges, round(share * fabric.n_edges), replace=False)] = True
    devices = np.array([fabric.switch("agg3_2"), fabric.switch("tor9_1")])
    faulty |= (np.isin(fabric.link_src, devices) | np.isin(fabric.link_dst, devices))[::2]
    success = 1 - np.where(
        faulty, rng.uniform(0.02, 1, fabric.n_edges), rng.uniform(0, 0.001, fabric.n_edges)
    )
    paths = probing_plan(fabric).paths
    through = success[paths.links.reshape(-1, 6)[:, :3] >> 1].prod(axis=1)
    sent = np.full(len(paths), 100, np.int64)
    probes = Probes(paths, sent, rng.binomial(sent, 1 - through))
    result = paper().localize(Telemetry(fabric, "none", probes=probes))
    found = score(result.flagged, 2 * np.flatnonzero(faulty), fabric)["undirected"]
    assert found.false_positives == 0
    assert found.false_negatives <= 0.01 * faulty.sum()
    switches = result.devices[result.devices >= tree.n_hosts]
    assert np.isin(devices, switches).all() and np.isin(switches, devices).all()


def test_few_paths_can_convict():
    """A link of five paths that loses 4 %: with lambda = 1 they cannot outvote the regulariser, at
    100 probes a path. Ten times as many are as good as fifty paths."""
    fabric = leaf_spine(6, 3)
    src, dst = np.divmod(np.arange(36, dtype=np.int32), np.int32(6))
    paths = fabric.path_sets(src[src != dst], dst[src != dst]).paths
    link = fabric.link("leaf1->spine2")
    crosses = np.array([link in paths[p] for p in range(len(paths))])
    assert crosses.sum() == 5
    for times, found in ((1, []), (10, [link])):
        sent = np.full(len(paths), 100 * times, np.int64)
        probes = Probes(paths, sent, np.where(crosses, 4 * times, 0).astype(np.int64))
        telemetry = Telemetry(fabric, "given", probes=probes)
        assert paper().localize(telemetry).flagged.tolist() == found
        assert NetBouncer().localize(telemetry).flagged.tolist() == [link]


def test_parameters_are_checked():
    cases: list[dict[str, Any]] = [
        {"penalty": -1.0},
        {"link_threshold": 0.0},
        {"model": "l2"},
        {"lucky_share": 1.0},
    ]
    for wrong in cases:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            NetBouncer(**wrong)


def staged():
    return NetBouncerStage(penalty=1.0)


def paper():
    return NetBouncer(penalty=1.0)


@pytest.mark.parametrize(
    ("method", "per_tor", "least", "most_wrong"),
    [
        (paper, 1, 14, 0.5),
        (paper, 4, 19, 0.5),
        (NetBouncer, 1, 22, 4),
        (staged, 1, 14, 0.5),
    ],
)
def test_paper_setting(synthetic, method, per_tor, least, most_wrong):
    """K=8, 26 undirected links, 100 packets a path (Canary, figure 8: 15 found).

    lambda = 1 hides a link whose paths together miss less than half a packet in one: with 4 probe
    paths a link (one prober a ToR) that is 1/16 a direction, with 16 (every host) 1/64.
    """
    found, wrong = [], []
    for seed in range(8):
        world = synthetic.make_world(
            k=8, seed=seed, undirected=True, packets=1, epochs=1, flows=10, per_tor=per_tor
        )
        flagged = method().localize(world.telemetry).flagged
        result = score(flagged, world.faulty, world.topology)["undirected"]
        found.append(result.true_positives)
        wrong.append(result.false_positives)
    assert np.mean(found) >= least and np.mean(wrong) <= most_wrong


def test_removal_alone_finds_no_more(synthetic):
    for seed in range(6):
        world = synthetic.make_world(k=6, seed=seed, packets=1, epochs=1, flows=10)
        once = paper().localize(world.telemetry).flagged
        assert staged().localize(world.telemetry).flagged.tolist() == once.tolist()


def test_stages_grow(synthetic):
    world = synthetic.make_world(k=4, seed=5, packets=1, epochs=1, flows=10)
    stages = NetBouncerStage().localize(world.telemetry).stages
    assert len(stages) == 5
    for before, after in itertools.pairwise(stages):
        assert np.isin(before, after).all()
