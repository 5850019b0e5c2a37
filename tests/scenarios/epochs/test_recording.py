"""What a run with packets writes down, held against what the packets themselves say."""

from __future__ import annotations

import numpy as np

from testbed.fabric.topologies import make_addressed
from testbed.record.run import RunDirectory


def test_flows_begin_and_end_at_the_switches_of_their_hosts(finished_run: RunDirectory) -> None:
    flows, fabric = finished_run.table("flows"), finished_run.fabric
    config = finished_run.config
    host_tor = make_addressed(config["topology"], config["k"]).host_tor
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
