# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.fat_tree import FatTree
from testbed.traffic.flow_list import FlowListError, read_flow_list
from testbed.traffic.generator import FAST_FLOWS

K4 = FatTree(4)
RATE = 1e9
HEADERS = 1514 - 1460


def written(folder, rows, header="src,dst,bytes,start"):
    path = folder / "flows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def listed(path, duration_s=10.0, seed=1):
    return read_flow_list(path, K4, duration_s, seed, RATE, FAST_FLOWS)


def test_each_flow_sends_its_bytes_from_its_second_on(tmp_path):
    path = written(tmp_path, ["0,15,100000,0.5", "3,8,1460,0", "9,2,1,2.25"])
    traffic = listed(path).traffic
    assert traffic.src_host.tolist() == [3, 0, 9]  # in order of their first packets
    assert traffic.dst_host.tolist() == [8, 15, 2]
    sent = np.bincount(traffic.flow, weights=traffic.size.astype(float) - HEADERS)
    frames = np.bincount(traffic.flow)
    assert frames.tolist() == [1, 69, 1]
    assert sent[:2].tolist() == [1460, 100_000]
    assert traffic.size[traffic.flow == 2].tolist() == [64]  # the least a frame can be
    first = [traffic.time_ns[traffic.flow == f].min() / 1e9 for f in range(3)]
    # A train leaves when its bytes are there: a few milliseconds at 20 to 80 Mb/s.
    assert all(0 <= at - start < 0.03 for at, start in zip(first, [0, 0.5, 2.25], strict=True))


def test_hosts_are_named_or_numbered_and_columns_in_any_order(tmp_path):
    first, last = K4.host_names[0], K4.host_names[-1]
    path = written(tmp_path, [f"1.5,{first},1000,{last}"], "start,src,bytes,dst")
    traffic = listed(path).traffic
    assert (traffic.src_host.tolist(), traffic.dst_host.tolist()) == ([0], [K4.n_hosts - 1])


def test_the_seed_draws_what_the_list_leaves_open(tmp_path):
    path = written(tmp_path, [f"{i % 8},{8 + i % 8},20000,{i / 100}" for i in range(100)])
    one, again, other = (listed(path, seed=seed).traffic for seed in (1, 1, 2))
    assert (one.time_ns == again.time_ns).all() and (one.src_port == again.src_port).all()
    assert not np.array_equal(one.time_ns, other.time_ns)
    assert np.array_equal(np.bincount(one.flow), np.bincount(other.flow))


def test_what_is_not_sent_is_counted(tmp_path):
    path = written(tmp_path, ["0,1,1000,0", "0,8,1000,3", "0,9,1000,1", "2,3,1000,3"])
    found = listed(path, duration_s=2.0)
    assert (found.listed, found.late, found.within_a_rack) == (4, 2, 1)
    assert found.traffic.n_flows == 1


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0,99,1,0", "row 1: dst '99' is not a host: use 0 to 15, or"),
        ("tor0_0,9,1,0", "row 1: src 'tor0_0' is not a host"),
        ("-1,9,1,0", "row 1: src '-1' is not a host"),
        (",9,1,0", "row 1: src is missing"),
        ("9,9,1,0", "row 1: src and dst are the same host"),
        ("0,9,0,0", "row 1: bytes is 0: 1 to 1e\\+15 is needed"),
        ("0,9,1e16,0", "row 1: bytes is 1e\\+16"),
        ("0,9,,0", "row 1: bytes is nan"),
        ("0,9,nan,0", "row 1: bytes is nan"),
        ("0,9,1,-1", "row 1: start is -1: a number of at least 0 is needed"),
        ("0,9,1,inf", "row 1: start is inf"),
        ("0,9,many,0", "many"),
        ("0,9,1", "3"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(tmp_path, row, reason):
    path = written(tmp_path, ["0,8,1000,0", row])
    with pytest.raises(FlowListError, match=reason) as refused:
        listed(path)
    assert str(refused.value).startswith(str(path))
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("rows", "header", "reason"),
    [
        ([], "src,dst,bytes,start", "has 0 flows"),
        (
            ["1,2,3"],
            "src,dst,bytes",
            "its columns are 'src', 'dst', 'bytes': src, dst",
        ),
        (["1,2,3,4,5"], "src,dst,bytes,start,x", "its columns are"),
        (["0,8,1,5"], "src,dst,bytes,start", "none of its 1 flows begins within the run's 2 s"),
    ],
)
def test_a_list_of_no_use_is_said(tmp_path, rows, header, reason):
    with pytest.raises(FlowListError, match=reason):
        listed(written(tmp_path, rows, header), duration_s=2.0)
    with pytest.raises(FlowListError, match="check TRAFFIC"):
        listed(tmp_path / "nothing.csv")


@settings(max_examples=200)
@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "replace")))
def test_any_file_is_taken_or_refused_in_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("flows") / "flows.csv"
    path.write_bytes(b"src,dst,bytes,start\n" + data)
    try:
        listed(path)
    except FlowListError as error:
        assert len(str(error).splitlines()) == 1


def test_addresses_become_hosts_and_times_since_1970_count_from_the_first(tmp_path):
    rows = [
        f"10.{i % 4}.0.1,10.{(i + 1) % 4}.0.{i % 3},{1500 * (i + 1)},{1.7e9 + i / 10}"
        for i in range(20)
    ]
    found = listed(written(tmp_path, rows))
    assert (found.listed, found.late, found.within_a_rack) == (20, 0, 0)
    assert found.traffic.n_flows == 20
    six = listed(written(tmp_path, [row.replace("10.", "2001:db8::") for row in rows[:0]] + [
        "2001:db8::1,2001:db8::2,9000,0", "2001:db8::2,2001:db8::3,9000,1"]))  # fmt: skip
    pairs = list(zip(six.traffic.src_host.tolist(), six.traffic.dst_host.tolist(), strict=True))
    assert pairs[0][1] == pairs[1][0]  # one address, one host
    with pytest.raises(FlowListError, match="row 0: src and dst are the same address"):
        listed(written(tmp_path, ["10.0.0.1,10.0.0.1,9000,0"]))
    with pytest.raises(FlowListError, match="row 0: src '10.0.0.1' is not a host"):
        listed(written(tmp_path, ["10.0.0.1,3,9000,0"]))
