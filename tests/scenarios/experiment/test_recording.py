# SPDX-License-Identifier: Apache-2.0
"""What a run with packets writes down, held against what the packets themselves say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from testbed.fabric.topologies import make_packet_fabric
from testbed.record.run import RunDirectory
from tests.conftest import SMALL


def test_flows_begin_and_end_at_the_switches_of_their_hosts(finished_run: RunDirectory) -> None:
    flows, fabric = finished_run.table("flows"), finished_run.fabric
    host_tor = make_packet_fabric(SMALL.topology, SMALL.k, SMALL.seed).host_tor
    assert np.array_equal(flows["src_tor"], host_tor[flows["src_host"]])
    assert np.array_equal(flows["dst_tor"], host_tor[flows["dst_host"]])
    assert (flows["src_tor"] != flows["dst_tor"]).mean() > 0.5

    connections = finished_run.table("connections")
    whole = np.flatnonzero(connections["complete"])
    assert len(whole)
    for number in whole.tolist():
        path, flow = connections["path"][number], connections["flow"][number]
        if not len(path):
            continue  # both hosts are at one switch
        assert fabric.link_src[path[0]] == flows["src_tor"][flow], "as the switches answered"
        assert fabric.link_dst[path[-1]] == flows["dst_tor"][flow]


def test_tables_cut_off_while_they_were_written_have_the_epochs_before(
    finished_run: RunDirectory, tmp_path: Path
) -> None:
    """In real time all is written after every epoch, network.json last."""
    cut = tmp_path / "here.partial"
    shutil.copytree(finished_run.path, cut)
    network = json.loads((cut / "network.json").read_text())
    (cut / "network.json").write_text(json.dumps({**network, "epochs": 1}))
    run = RunDirectory(cut, finished=False)
    for name in ("rules", "selection"):
        whole = finished_run.table(name)
        first = whole["epoch"] == 0
        assert 0 < first.sum() < len(first)
        for column, values in run.table(name).items():
            assert np.array_equal(values, whole[column][first])
