# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from canary_softswitch import Program, Switch
from testbed.control.forwarding import install_forwarding
from testbed.dataplane import PROGRAM, VERDICT
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.probe_matrix.matrix import probe_matrix, standard_matrix
from testbed.fabric.topologies import make_packet_fabric
from testbed.measurements.matrix.probes import PAIRS, MatrixProbes, matrix_probes
from testbed.network.schedules import listed
from testbed.network.sources import Source
from testbed.network.virtual import VirtualNetwork

K4 = FatTree(4)
MATRIX = standard_matrix(K4)


def probes(each: int = 25, seed: int = 1) -> MatrixProbes:
    return matrix_probes(K4, MATRIX, 0.6, each, seed)


def test_every_path_is_probed_equally_by_several_hosts() -> None:
    plan = probes()
    assert len(plan.paths) == 2 * len(MATRIX)
    assert (np.bincount(plan.path) == PAIRS).all()
    assert (np.bincount(listed(plan.packets).flow) == 25).all()
    for path in range(len(plan.paths)):
        links = plan.paths[path]
        assert (K4.host_tor[plan.src_host[plan.path == path]] == K4.link_src[links[0]]).all()
        assert (K4.host_tor[plan.dst_host[plan.path == path]] == K4.link_dst[links[-1]]).all()
        assert len(set(plan.src_host[plan.path == path].tolist())) == K4.half


def test_probes_are_spread_over_the_run_and_deterministic() -> None:
    plan, again, other = (listed(p.packets) for p in (probes(), probes(), probes(seed=2)))
    assert (np.diff(plan.time_ns.astype(np.int64)) >= 0).all()
    assert plan.time_ns[-1] < 0.6e9
    assert (plan.time_ns == again.time_ns).all() and (plan.flow == again.flow).all()
    assert (plan.time_ns != other.time_ns).any()
    gaps = np.diff(plan.time_ns[plan.flow == 7].astype(np.int64))
    assert np.ptp(gaps) <= 1


def test_frames_are_ip_in_ip_that_no_kernel_answers() -> None:
    plan = probes()
    tuples = set()
    for flow in range(len(plan.path)):
        raw = plan.frames[flow].tobytes()
        assert len(raw) == 64
        packet = Ether(raw)
        outer, inner = packet[IP], packet[IP].payload
        assert isinstance(inner, IP) and inner.payload.name == "UDP"
        turn = MATRIX.turn[plan.path[flow] // 2]
        assert int.from_bytes(bytes(map(int, str(outer.dst).split(".")))) == K4.switch_ip[turn]
        assert outer.src == inner.src != inner.dst
        assert outer.ttl == inner.ttl == 15
        for header in (outer, inner):
            rebuilt = header.copy()
            del rebuilt.chksum
            assert IP(bytes(rebuilt)).chksum == header.chksum
        good = inner.copy()
        del good[UDP].chksum
        right = IP(bytes(good))[UDP].chksum
        assert inner[UDP].chksum not in (0, right)
        tuples.add((inner.src, inner.dst, inner[UDP].sport, inner[UDP].dport))
    assert len(tuples) == len(plan.path)


def test_small_fat_trees_need_paths_within_pods() -> None:
    for k in (4, 6):
        topology = FatTree(k)
        matrix = probe_matrix(topology, 3, 2)
        assert (topology.tier[matrix.turn] == 1).any() == (k == 4)


@pytest.mark.parametrize(
    ("text", "k"),
    [("fat-tree", 4), ("fat-tree", 6), ("leaf-spine:6:4", 4), ("clos:3:2:2:6:2", 4)],
)
def test_probes_take_the_planned_paths(text: str, k: int) -> None:
    topology = make_packet_fabric(text, k, seed=1)
    matrix = probe_matrix(topology, 3, 1 if text.startswith("leaf") else 2)
    plan = matrix_probes(topology, matrix, 0.1, 1, seed=1)
    program = Program.load(PROGRAM, observe=VERDICT.field)
    switches = [Switch(program, seed=i) for i in range(topology.n_switches)]
    for index, switch in enumerate(switches):
        install_forwarding(topology, index, switch, mask=1, monitor=False)
    network = VirtualNetwork(topology, program, switches)
    frames = plan.frames
    source = network.add_source(
        Source(
            packets=plan.packets,
            templates=frames,
            template_length=np.full(len(frames), frames.shape[1], np.uint16),
            src_host=plan.src_host,
            dst_host=plan.dst_host,
        )
    )
    network.run_until(10**10)
    assert (network.delivered(source) == 1).all()
    planned = np.bincount(plan.paths.links, minlength=topology.n_links) * PAIRS
    assert (network.link_packets() == planned).all()
