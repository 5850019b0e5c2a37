# SPDX-License-Identifier: Apache-2.0
"""deTector's probes over real packets: on their paths, and no host's kernel answers them."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fabric.probe_matrix.matrix import standard_matrix
from testbed.measurements.matrix.probes import matrix_probes
from testbed.network.mininet import MininetNetwork
from testbed.network.schedules import Packets, listed
from testbed.network.sources import Source
from tests.testbed.network.mininet.conftest import TOPOLOGY

pytestmark = pytest.mark.root


def test_matrix_probes_take_their_paths_and_kernels_keep_silent(net: MininetNetwork) -> None:
    plan = matrix_probes(TOPOLOGY, standard_matrix(TOPOLOGY), 1.0, each=4)
    frames, probes = plan.frames, listed(plan.packets)
    start = np.uint64(net.now_ns + 50_000_000)
    strangers = net._hosts.statistics()["strangers"]
    already = net.link_packets().astype(np.int64)
    number = net.add_source(
        Source(
            packets=Packets(start + probes.time_ns, probes.flow),
            templates=frames,
            template_length=np.full(len(frames), frames.shape[1], np.uint16),
            src_host=plan.src_host,
            dst_host=plan.dst_host,
        )
    )
    net.drain()
    sent = net.sent(number)
    assert sent.sum() == len(plan.packets)
    assert (net.delivered(number) == sent).all()
    links = plan.paths.links
    planned = np.bincount(
        links, np.bincount(plan.path, sent)[plan.paths.owner], minlength=TOPOLOGY.n_links
    )
    assert (net.link_packets() - already >= planned).all()
    after = net._hosts.statistics()
    assert after["misdelivered"] == after["shims"] == 0
    assert after["strangers"] == strangers  # no ICMP "port unreachable"
