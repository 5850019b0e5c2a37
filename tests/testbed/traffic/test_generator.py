# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import UserError
from testbed.fabric.clos import clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.traffic.distributions import WORKLOADS
from testbed.traffic.flows import TCP, UDP, Traffic, make_distinct
from testbed.traffic.generator import flow_process, generate

K4 = FatTree(4)
K8 = FatTree(8)

FLOWS = ("src_host", "dst_host", "src_port", "dst_port", "protocol")
COLUMNS = (*FLOWS, "time_ns", "flow", "size")


def wire_ns(traffic: Traffic) -> np.ndarray:
    """Time on a 1 Gb/s link, preamble, FCS and gap included."""
    return (traffic.size.astype(np.int64) + 24) * 8


def tuples(traffic: Traffic) -> set:
    columns = (
        traffic.src_host,
        traffic.dst_host,
        traffic.src_port,
        traffic.dst_port,
        traffic.protocol,
    )
    return set(zip(*(c.tolist() for c in columns), strict=True))


@given(
    workload=st.sampled_from(WORKLOADS),
    load=st.floats(0.01, 0.9),
    duration_s=st.floats(0.001, 0.1),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None)
def test_traffic_is_well_formed(workload, load, duration_s, seed):
    traffic = generate(K4, workload, load, duration_s, seed)
    types = (np.int32, np.int32, np.uint16, np.uint16, np.uint8, np.uint64, np.uint32, np.uint16)
    for name, dtype in zip(COLUMNS, types, strict=True):
        assert getattr(traffic, name).dtype == dtype, name
    assert (traffic.time_ns[1:] >= traffic.time_ns[:-1]).all()
    assert (traffic.time_ns < duration_s * 1e9).all()
    assert traffic.size.min(initial=64) >= 64 and traffic.size.max(initial=64) <= 1514
    assert (K4.host_tor[traffic.src_host] != K4.host_tor[traffic.dst_host]).all()
    assert np.isin(traffic.protocol, (TCP, UDP)).all()
    assert len(tuples(traffic)) == traffic.n_flows
    assert len(np.unique(traffic.flow)) == traffic.n_flows


def test_a_seed_gives_one_traffic():
    first, second = (generate(K4, "hadoop", 0.4, 0.05, 5) for _ in range(2))
    for name in COLUMNS:
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert len(generate(K4, "hadoop", 0.4, 0.05, 6).packets) != len(first.packets)


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("load", [0.2, 0.6])
def test_hosts_send_the_load_from_the_start(workload, load):
    """Mean over seeds, in the first tenth of the run and in the rest."""
    duration_s, early, late = 0.2, [], []
    for seed in range(12):
        traffic = generate(K4, workload, load, duration_s, seed)
        cut = np.searchsorted(traffic.time_ns, np.uint64(0.1 * duration_s * 1e9))
        busy = wire_ns(traffic) / K4.n_hosts / (duration_s * 1e9)
        early.append(busy[:cut].sum() / 0.1)
        late.append(busy[cut:].sum() / 0.9)
    for part in (early, late):
        error = np.std(part, ddof=1) / np.sqrt(len(part))
        assert abs(np.mean(part) - load) < 4.5 * error + 0.02 * load


@pytest.mark.parametrize("load", [0.3, 0.9])
def test_frames_of_a_host_never_overlap(load):
    traffic = generate(K4, "websearch", load, 0.1, 2)
    source = traffic.src_host[traffic.flow]
    for host in range(K4.n_hosts):
        mine = source == host
        end = traffic.time_ns[mine].astype(np.int64) + wire_ns(traffic)[mine]
        assert (traffic.time_ns[mine][1:].astype(np.int64) >= end[:-1] - 1).all()


def test_frames_leave_in_trains():
    traffic = generate(K4, "websearch", 0.3, 0.3, 3)
    flow = np.bincount(traffic.flow).argmax()
    time = traffic.time_ns[traffic.flow == flow].astype(np.int64)
    gaps = np.diff(time)
    back_to_back = gaps <= 1538 * 8 + 1
    trains = np.split(time, np.flatnonzero(~back_to_back) + 1)
    lengths = np.array([len(train) for train in trains[:-1]])
    assert lengths.min() >= 16 and np.median(lengths) <= 44


def test_large_flows_live_through_epochs():
    traffic = generate(K4, "websearch", 0.4, 0.6, 4)
    sent = np.bincount(traffic.flow, weights=traffic.size)
    first = np.full(traffic.n_flows, np.inf)
    last = np.zeros(traffic.n_flows)
    np.minimum.at(first, traffic.flow, traffic.time_ns)
    np.maximum.at(last, traffic.flow, traffic.time_ns)
    large = sent > 1.5e6
    assert large.sum() > 20
    assert ((last - first)[large] > 120e6).all()
    rate = sent[large] * 8 / (last - first)[large]  # Gb/s
    assert rate.min() > 0.015 and rate.max() < 0.12


def test_new_flows_have_the_published_sizes():
    """Flows that begin in the first half and are small enough to end before the run does."""
    traffic = generate(K8, "storage", 0.3, 0.3, 5)
    sent = np.bincount(traffic.flow, weights=traffic.size.astype(float) - 54)
    first = np.full(traffic.n_flows, np.inf)
    np.minimum.at(first, traffic.flow, traffic.time_ns.astype(float))
    new = (first > 50e6) & (first < 150e6)
    for size, share in ((4000, 0.2293), (16000, 0.8061), (64000, 0.9353)):
        measured = (sent[new] <= size).mean()
        assert abs(measured - share) < 5 * np.sqrt(share * (1 - share) / new.sum())


def test_destinations_are_uniform_over_other_racks():
    traffic = generate(K4, "storage", 0.5, 0.5, 6)
    pair = traffic.src_host.astype(int) * K4.n_hosts + traffic.dst_host
    counts = np.bincount(pair, minlength=K4.n_hosts**2).reshape(K4.n_hosts, K4.n_hosts)
    other = K4.host_tor[:, None] != K4.host_tor[None, :]
    expected = traffic.n_flows / other.sum()
    chi2 = ((counts[other] - expected) ** 2).sum() / expected
    assert abs(chi2 - other.sum()) < 5 * np.sqrt(2 * other.sum())
    udp = (traffic.protocol == UDP).mean()
    assert 0.03 < udp < 0.07


def test_skewed_traffic_is_among_few_racks():
    traffic = generate(K4, "storage", 0.25, 0.5, 7, pattern="skewed")
    src, dst = K4.host_tor[traffic.src_host], K4.host_tor[traffic.dst_host]
    pairs = np.bincount(src * K4.n_tors + dst, minlength=K4.n_tors**2).reshape(8, 8)
    hot = np.argsort(pairs.sum(axis=1))[-2:]
    # half by choice, and of the rest what falls there by chance
    share = pairs[np.ix_(hot, hot)].sum() / traffic.n_flows
    assert abs(share - (0.5 + 0.5 * 2 / 56)) < 0.02
    assert (src != dst).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("web", 0.4, 0.1, 1), "TRAFFIC=web is unknown: use hadoop"),
        (("hadoop", 0.0, 0.1, 1), "LOAD=0 is out of range"),
        (("hadoop", 1.5, 0.1, 1), "LOAD=1.5 is out of range"),
        (("hadoop", float("nan"), 0.1, 1), "LOAD=nan"),
        (("hadoop", 0.4, 0.0, 1), "a run of 0 s"),
        (("hadoop", 0.6, 0.1, 1, "skewed"), "LOAD=0.6 with skewed traffic .* use at most 0.38"),
    ],
)
def test_bad_arguments_are_one_clear_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        generate(K4, *arguments)
    assert "\n" not in str(error.value)


def test_equal_tuples_get_other_ports():
    rng = np.random.default_rng(1)
    n = 3000
    src, dst = np.zeros(n, np.int32), np.ones(n, np.int32)
    src_port = rng.integers(1024, 1034, n).astype(np.uint16)
    dst_port = np.full(n, 80, np.uint16)
    protocol = np.full(n, TCP, np.uint8)
    kept = src_port.copy()
    make_distinct(rng, src, dst, src_port, dst_port, protocol)
    assert len(np.unique(src_port)) == n and (dst_port == 80).all()
    _, first = np.unique(kept, return_index=True)
    assert (src_port[first] == kept[first]).all()


def test_more_flows_than_source_ports():
    rng = np.random.default_rng(2)
    n = 100_000
    src_port, dst_port = np.full(n, 7, np.uint16), np.full(n, 80, np.uint16)
    same = np.zeros(n, np.int32)
    make_distinct(rng, same, same + 1, src_port, dst_port, np.full(n, UDP, np.uint8))
    assert len(np.unique(src_port.astype(np.uint32) << 16 | dst_port)) == n


@pytest.mark.parametrize(
    "fabric", [K4, K8, leaf_spine(4, 2), clos(3, 1, 2, 4)], ids=lambda fabric: fabric.title
)
@pytest.mark.parametrize("locality", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("pattern", ["uniform", "skewed"])
def test_a_share_of_the_traffic_stays_in_its_pod(fabric, locality, pattern):
    """The flows that are drawn follow the shares of the pairs, and these the locality."""
    rng = np.random.default_rng(1)
    process = flow_process(fabric, "hadoop", 0.1, rng, pattern, locality=locality)
    share = process.pair_share()
    assert share.sum() == pytest.approx(1) and (np.diag(share) == 0).all()
    pod = fabric.pod[: fabric.n_tors]
    racks = np.bincount(pod)
    if pattern == "uniform" and racks.min() > 1 and len(racks) > 1:
        assert share[pod[:, None] == pod].sum() == pytest.approx(locality)
    flows = process.draw(0.2, rng, most=20_000)
    pair = flows.src // fabric.hosts_per_tor * fabric.n_tors + flows.dst // fabric.hosts_per_tor
    drawn = np.bincount(pair, minlength=share.size) / len(pair)
    slack = 6 * np.sqrt(share.ravel() / len(pair)) + 1e-9
    assert (np.abs(drawn - share.ravel()) <= slack).all()


def test_flows_send_at_the_rate_that_is_asked_for():
    """Flows that outlast a run of 1 s send 0.1 % of the line rate, in trains spread over it."""
    traffic = generate(K4, "websearch", 0.06, 1.0, 8, flow_rate=(0.001, 0.001))
    packets = np.bincount(traffic.flow)
    whole = 0.001 * 1e9 / (8 * (1514 + 24))
    assert np.percentile(packets, 95) <= whole + 30
    assert np.median(packets) == pytest.approx(whole, rel=0.2)
    assert len(packets) / 16 == pytest.approx(0.06 / 0.001, rel=0.3)
