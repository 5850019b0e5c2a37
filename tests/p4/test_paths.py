# SPDX-License-Identifier: Apache-2.0
"""The segment that a packet carries, and the paths that flows take."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from canary_softswitch import Program
from testbed.fabric.pathbf import bloom_mask, switch_ids

from .fabric import Fabric, flow_between
from .frames import TCP, Flow, frame, shim_of


@pytest.mark.parametrize("monitors", ["tor", "tor+core", "tor+agg", "tor+agg+core", "tor+core0"])
def test_path_bf_at_each_monitor_is_what_the_decoder_expects_on_every_path(
    program: Program, monitors: str
) -> None:
    fabric = Fabric(program, 4, monitors)
    topology = fabric.topology
    seen = set()
    for src in range(0, topology.n_hosts, 2):
        for dst in range(1, topology.n_hosts, 2):
            for port in range(24):
                journey = fabric.send(src, frame(flow_between(fabric, src, dst, port)))
                assert journey.host == dst
                since = [journey.switches[0]]
                for (_, _, data), arrived in zip(journey.hops, journey.switches[1:], strict=False):
                    shim = shim_of(data)
                    assert shim is not None
                    since.append(arrived)
                    if fabric.is_monitor[arrived]:
                        segment = fabric.segment(*since)
                        assert shim.path_bf == fabric.decoder.path_bf[segment]
                        decoded = fabric.decoder.decode(
                            np.array([arrived]), np.array([shim.path_bf])
                        )
                        assert decoded == [segment]
                        seen.add(segment)
                        since = [arrived]
    assert seen == set(range(len(fabric.segments))), "a segment carried no packet"


def test_switch_ids_give_masks_of_at_most_three_bits(fabric: Fabric) -> None:
    masks = bloom_mask(switch_ids(fabric.topology, fabric.segments, seed=1))
    assert (masks == fabric.masks).all()
    assert all(1 <= int(mask).bit_count() <= 3 for mask in masks)


def test_packets_of_one_flow_keep_one_path(fabric: Fabric) -> None:
    for port in range(20):
        flow = flow_between(fabric, 0, 15, port)
        paths = {
            tuple(fabric.send(0, frame(flow, ttl, bytes(size)), now).switches)
            for ttl in (64, 33)
            for size in (0, 100, 1400)
            for now in (0, 10**9)
        }
        assert len(paths) == 1


@pytest.mark.parametrize(("k", "limit"), [(4, 16.3), (8, 37.7)])  # chi-square, 99.9 %
def test_flows_spread_evenly_over_all_paths_and_tiers_choose_independently(
    program: Program, k: int, limit: float
) -> None:
    fabric = Fabric(program, k)
    rng = np.random.default_rng(k)
    dst = fabric.topology.n_hosts - 1
    paths = Counter()
    flows = 250 * (k // 2) ** 2
    for src_port, dst_port in rng.integers(1024, 65536, (flows, 2)).tolist():
        flow = Flow(fabric.host_ip(0), fabric.host_ip(dst), src_port, dst_port, TCP)
        _, agg, core, _, _ = fabric.send(0, frame(flow)).switches
        paths[agg, core] += 1
    # A core is reached through one aggregation switch alone, so 16 (4) paths, not more; were the
    # tiers polarised, most of them would stay empty.
    assert len(paths) == (k // 2) ** 2
    assert sum((n - 250) ** 2 / 250 for n in paths.values()) < limit


@pytest.mark.parametrize("counting", ["source port", "destination port", "both"])
@pytest.mark.parametrize("k", [4, 8])
def test_flows_with_consecutive_ports_spread_over_all_paths_too(
    program: Program, k: int, counting: str
) -> None:
    """As clients with ephemeral ports and parallel streams do; a bare CRC leaves paths unused."""
    fabric = Fabric(program, k)
    src, dst = fabric.host_ip(0), fabric.host_ip(fabric.topology.n_hosts - 1)
    paths = (k // 2) ** 2
    for first in (1024, 10_000, 40_000):
        count = Counter()
        for i in range(32 * paths):
            src_port = first + i * (counting != "destination port")
            dst_port = 5201 + i * (counting != "source port")
            count[fabric.send(0, frame(Flow(src, dst, src_port, dst_port, TCP))).switches[2]] += 1
        assert len(count) == paths
        assert sum((n - 32) ** 2 / 32 for n in count.values()) < 2.5 * paths
