"""NetBouncer: device detection, links, the paper's setting."""

import itertools

import numpy as np
import pytest

from analysis.diagnosis import both_directions
from analysis.metrics import score
from analysis.netbouncer import NetBouncer, NetBouncerStage, bad_devices
from analysis.telemetry import Probes, Telemetry
from testbed.topology import FatTree, Paths


def exact_probes(topology, loss, packets=1000):
    paths = Paths.from_padded(topology.bounce_paths().reshape(-1, 4))
    through = np.array([np.prod(1 - loss[paths[p]]) for p in range(len(paths))])
    sent = np.full(len(paths), packets, np.int64)
    return Probes(paths, sent, np.round(sent * (1 - through)).astype(np.int64))


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
    assert np.flatnonzero(bad_devices(probes, topology)).tolist() == [switch]
    result = NetBouncer().localize(Telemetry(topology, "tor+core", probes=probes))
    assert result.flagged.tolist() == sorted(topology.links_of(switch).tolist())


def test_device_detection_does_not_flag_everything(synthetic):
    """10 % faulty links leave nearly every switch with a good path."""
    world = synthetic.make_world(k=8, seed=3, undirected=True, packets=1, epochs=1, flows=10)
    assert bad_devices(world.telemetry.probes, world.topology).sum() == 0


def unmapped():
    return NetBouncerStage(mapped=False)


@pytest.mark.parametrize(
    ("method", "per_tor", "least", "most_wrong"),
    [
        (NetBouncer, 1, 14, 0.5),
        (NetBouncer, 4, 19, 0.5),
        (unmapped, 1, 14, 0.5),
        (NetBouncerStage, 1, 22, 2),
        (NetBouncerStage, 4, 24, 3),
    ],
)
def test_paper_setting(synthetic, method, per_tor, least, most_wrong):
    """K=8, 26 undirected links, 100 packets a path (Canary, figure 8: 15 found, staged 22).

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
        once = NetBouncer().localize(world.telemetry).flagged
        assert unmapped().localize(world.telemetry).flagged.tolist() == once.tolist()


def test_stages_grow(synthetic):
    world = synthetic.make_world(k=4, seed=5, packets=1, epochs=1, flows=10)
    stages = NetBouncerStage().localize(world.telemetry).stages
    assert len(stages) == 5
    for before, after in itertools.pairwise(stages):
        assert np.isin(before, after).all()
