# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from testbed.traffic.distributions import WORKLOADS
from testbed.traffic.summary import describe

NONE = np.zeros(0, np.int64)


def test_each_kind_of_traffic_has_its_line(tmp_path):
    assert describe("websearch", NONE) == (
        "flows: mean 1.71 MB, median 73.1 kB, largest 30 MB; 2.19 % have one packet"
    )
    for workload in WORKLOADS:
        assert describe(f"{workload}:skewed", NONE) == describe(workload, NONE)
    path = tmp_path / "flows.csv"
    path.write_text("src,dst,bytes,start\n0,9,1000,0\n0,9,2000,0\n0,9,6000,0\n0,9,1000000,9\n")
    assert describe(str(path), NONE) == (
        "flows: mean 252 kB, median 4 kB, largest 1 MB; 25 % have one packet"
    )
    assert describe("x.pcap:fit", np.array([0, 1, 1, 4, 30])) == (
        "flows: mean 9 packets, median 2, largest 30; 50 % have one packet"
    )
    assert describe("x.pcap", NONE) == "no flow"
    with pytest.raises(ValueError, match="there is no file of flow sizes"):
        describe(f"{tmp_path}/no.txt:packets=1460", NONE)
