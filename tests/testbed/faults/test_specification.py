# SPDX-License-Identifier: Apache-2.0

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import Fault, FaultError, FaultPlan, FlowMatch, Ternary
from testbed.faults.specification import LOW_RATES, PAPER_RATES, parse_faults


def named(names, tiers, pairs):
    """A fabric of switches with these names, and a link between each pair."""
    lower, upper = (np.array([names.index(pair[end]) for pair in pairs]) for end in (0, 1))
    return Fabric(names, np.array(tiers), lower, upper)


K4 = FatTree(4)
K8 = FatTree(8)


def test_none_breaks_nothing():
    plan = parse_faults("none", K4, 1)
    assert plan == FaultPlan() and plan.links.dtype == np.int32 and not len(plan.links)


@pytest.mark.parametrize(
    ("text", "topology", "links"),
    [("10pct", K4, 6), ("10pct", K8, 51), ("0.8pct", K4, 1), ("100%", K4, 64), ("6links", K4, 6)],
)
def test_random_links(text, topology, links):
    plan = parse_faults(text, topology, 3)
    assert len(plan.faults) == len(plan.links) == links
    assert (np.diff(plan.links) > 0).all()
    assert all(f.kind == "drop" and 0.001 <= f.rate <= 1 for f in plan.faults)


def test_same_seed_same_plan():
    for text in ("10pct", "devices:2", "3links,devices:1,tor0_0->agg0_1"):
        assert parse_faults(text, K8, 7) == parse_faults(text, K8, 7)
        assert parse_faults(text, K8, 7) != parse_faults(text, K8, 8)


@pytest.mark.parametrize("seed", range(5))
def test_52_links_have_the_papers_rates(seed):
    rates = np.array([f.rate for f in parse_faults("52links", K8, seed).faults])
    counts = [np.count_nonzero((rates >= r.low) & (rates <= r.high)) for r in PAPER_RATES]
    assert counts == [11, 13, 9, 9, 10]


def test_one_link_is_drawn_in_the_papers_proportions():
    draws = np.array([parse_faults("1links", K4, seed).faults[0].rate for seed in range(3000)])
    for r in PAPER_RATES:
        expected = r.weight / 52
        share = ((draws >= r.low) & (draws <= r.high)).mean()
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(draws))


@given(n=st.integers(1, 512), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_any_number_of_links_is_stratified(n, seed):
    rates = np.array([f.rate for f in parse_faults(f"{n}links", K8, seed).faults])
    for r in PAPER_RATES:
        inside = np.count_nonzero((rates > r.low) & (rates < r.high))
        assert abs(inside - n * r.weight / 52) < 1


def test_low_rates():
    faults = parse_faults("30links", K4, 1, LOW_RATES).faults
    assert all(0.001 <= f.rate <= 0.05 for f in faults)


def test_device_takes_all_its_links():
    plan = parse_faults("device:agg0_1", K4, 1)
    assert plan.devices == (K4.switch("agg0_1"),)
    assert plan.links.tolist() == sorted(K4.links_of(plan.devices[0]).tolist())


def test_random_devices():
    plan = parse_faults("devices:3", K8, 4)
    assert len(plan.devices) == 3
    expected = {link for device in plan.devices for link in K8.links_of(device).tolist()}
    assert set(plan.links.tolist()) == expected


def rates_by_device(plan, fabric=K8):
    rates = {f.link: f.rate for f in plan.faults}
    return [
        {rates[link] for link in fabric.links_of(device).tolist() if link in rates}
        for device in plan.devices
    ]


def test_the_links_of_a_device_lose_at_one_rate_or_all():
    """At a chance of one half each, 40 devices are all alike once in 2 ** 39."""
    every = []
    for seed in range(20):
        own = rates_by_device(parse_faults("devices:2", K8, seed))
        shared = [rate for rates in own for rate in rates]
        assert len(set.union(*own)) <= 2, "a link between the two has the rate of one of them"
        every += shared
    assert 0 < sum(rate == 1 for rate in every) < len(every)
    assert len({rate for rate in every if rate < 1}) > 5
    (own,) = rates_by_device(parse_faults("device:agg0_1@50pct", K8, 3))
    assert len(own) == 1
    (own,) = rates_by_device(parse_faults("device:agg0_1:0.001..0.01", K8, 3))
    assert len(own) == 1 and 0.001 <= min(own) <= 0.01
    assert rates_by_device(parse_faults("device:agg0_1:0.2", K8, 3)) == [{0.2}]
    low = [rates_by_device(parse_faults("devices:1", K8, seed, LOW_RATES)) for seed in range(20)]
    assert all(max(own) <= 0.05 for (own,) in low), "where no rate is 1, no device is dead"


@pytest.mark.parametrize("text", ["device-links:2", "device-links:agg0_1", "device-links:1@50pct"])
def test_device_links_have_a_rate_each(text):
    plan = parse_faults(text, K8, 4)
    for device, own in zip(plan.devices, rates_by_device(plan), strict=True):
        broken = np.isin(K8.links_of(device), plan.links).sum()
        assert len(own) == broken > 1


def test_a_file_says_whether_links_or_devices_have_a_rate(tmp_path):
    path = write(tmp_path, "faults:\n- {device: agg0_1, rate_of: link}\n- {device: core3}\n")
    plan = parse_faults(path, K8, 1)
    several, one = rates_by_device(plan)
    assert len(several) == 16 and len(one) == 1
    with pytest.raises(FaultError, match="rate_of is only for the links of a device"):
        parse_faults(write(tmp_path, "faults:\n- {links: 2, rate_of: link}\n"), K8, 1)


def test_lists_mix_everything():
    plan = parse_faults("6links, tor0_0->agg0_1:0.05, device:core3, 4links:0.5", K4, 2)
    rates = {f.link: f.rate for f in plan.faults}
    assert rates[K4.link("tor0_0->agg0_1")] == 0.05
    assert sum(rate == 0.5 for rate in rates.values()) == 4
    assert len(rates) == 6 + 1 + 8 + 4


def test_share_of_a_devices_links():
    plan = parse_faults("device:agg0_1@50pct:0.2,devices:2@25pct", K8, 4)
    agg, *others = sorted(plan.devices, key=lambda d: d != K8.switch("agg0_1"))
    assert len(others) == 2
    named = np.isin(K8.links_of(agg), [f.link for f in plan.faults if f.rate == 0.2])
    assert named.sum() == len(named) // 2
    for device in others:
        broken = np.isin(K8.links_of(device), plan.links)
        assert len(broken) // 4 <= broken.sum() < len(broken)
    assert plan != parse_faults("device:agg0_1@50pct:0.2,devices:2@25pct", K8, 5)


def test_faults_of_a_fabric_that_is_no_fat_tree():
    fabric = leaf_spine(4, 3)
    plan = parse_faults("25pct,leaf0->spine2:0.5", fabric, 1)
    assert len(plan.links) == 7 and fabric.link("leaf0->spine2") in plan.links
    with pytest.raises(FaultError, match="leaf-spine of 4 leaves .* nearest is spine2"):
        parse_faults("device:spine3", fabric, 1)


def test_named_link_overrules_its_device():
    plan = parse_faults("device:agg0_1,agg0_1->core2:0.25", K4, 2)
    assert len(plan.faults) == 8
    assert {f.link: f.rate for f in plan.faults}[K4.link("agg0_1->core2")] == 0.25


def test_a_link_without_a_direction_is_both() -> None:
    for text in ("tor0_0-agg0_1:0.05", "agg0_1-tor0_0:0.05", "tor0_0--agg0_1 :0.05"):
        plan = parse_faults(text, K4, 1)
        names = [K4.link_names[fault.link] for fault in plan.faults]
        assert names == ["tor0_0->agg0_1", "agg0_1->tor0_0"]
        assert [fault.rate for fault in plan.faults] == [0.05, 0.05]
    drawn = parse_faults("tor0_0-agg0_1", K4, 1)
    assert len({fault.rate for fault in drawn.faults}) == 2, "a rate of its own for each direction"


def test_hyphens_of_names_are_read_against_the_fabric() -> None:
    names = ["a", "a-b", "b-c", "c", "x-1"]
    tiers = [0, 0, 1, 1, 1]
    fabric = named(names, tiers, [("a", "c"), ("a-b", "c"), ("a", "x-1")])
    links = parse_faults("a-b-c:0.1, a-x-1:0.1", fabric, 1).links
    assert {fabric.link_names[link] for link in links} == {"a->x-1", "x-1->a", "a-b->c", "c->a-b"}
    both = named(names, tiers, [("a", "b-c"), ("a-b", "c"), ("a", "x-1")])
    with pytest.raises(FaultError, match="'a-b-c' may be a->b-c or a-b->c: write one of them"):
        parse_faults("a-b-c", both, 1)
    assert len(parse_faults("a->b-c", both, 1).links) == 1


def test_ranges_are_drawn_from() -> None:
    """1 to 8 links at 0.1 to 1 % (Flock, section 7.1); parts of devices (section 7.2)."""
    plans = [parse_faults("1..8links:0.001..0.01", K4, seed) for seed in range(40)]
    assert {len(plan.faults) for plan in plans} == set(range(1, 9))
    rates = [fault.rate for plan in plans for fault in plan.faults]
    assert all(0.001 <= rate <= 0.01 for rate in rates) and len(set(rates)) == len(rates)
    plans = [parse_faults("devices:1..2@25..100pct:0.001..0.01", K4, seed) for seed in range(20)]
    assert {len(plan.devices) for plan in plans} == {1, 2}
    assert len({len(plan.faults) / len(plan.devices) for plan in plans}) > 3
    assert len({len(parse_faults("2..10pct", K4, seed).faults) for seed in range(9)}) > 3
    assert parse_faults("10pct", K4, 3) == parse_faults("10pct", K4, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8..1links", "links 8..1 runs backwards"),
        ("3..3links", "links 3..3 runs backwards"),
        ("0..2links", "links must be above 0"),
        ("2links:0.01..0.001", "rate 0.01..0.001 runs backwards"),
        ("2links:0.01..2", r"2 is outside \(0, 1\]"),
        ("2links:0.01..", "rate: must be a valid number"),
        ("2links:..", "rate: must be a valid number"),
        ("", "empty item"),
        ("6links,", "empty item"),
        ("lots", "'lots' is unknown: use none, 10pct"),
        ("none,6links", "none cannot be combined"),
        ("tor0_0->agg0_9", "no link 'tor0_0->agg0_9' .* nearest is tor0_0->agg0_"),
        ("tor0_0->core1", "nearest is tor0_0->agg0_"),
        ("->", "no link '->'"),
        ("tor0_0-", "ends in -: put it in quotes, as in FAULTS='tor0_0->agg0_1:0.05'"),
        ("6links, tor0_0-", "ends in -: put it in quotes"),
        ("tor0_0-agg0_9", "no link 'tor0_0-agg0_9' .* nearest is tor0_0-agg0_.; use none, 10pct"),
        ("tor0_0-core1:0.1", "no link 'tor0_0-core1' .* nearest is tor0_0-agg0_"),
        ("6-links", "no link '6-links' .* use none, 10pct"),
        ("-", "ends in -"),
        ("-a", "'-a' is unknown: use none"),
        ("tor0_0-agg0_1:0.1,agg0_1->tor0_0", "agg0_1->tor0_0 is named twice"),
        ("device:agg9_1", "no switch 'agg9_1' .* nearest is agg._1"),
        ("tor0_0->agg0_1:5", r"5 is outside \(0, 1\]: a loss rate of 5 % is 0.05"),
        ("tor0_0->agg0_1:0", r"0 is outside \(0, 1\]"),
        ("tor0_0->agg0_1:nan", r"nan is outside \(0, 1\]"),
        ("6links:-1", r"-1 is outside \(0, 1\]"),
        ("6links:much", "rate: must be a valid number"),
        ("tor0_0->agg0_1,tor0_0->agg0_1", "named twice"),
        ("device:agg0_1,device:agg0_1", "named twice"),
        ("65links", "asks for 65 random links, .* has 64"),
        ("60links,10pct", "asks for 6 random links, .* has 4"),
        ("101pct", "asks for 65 random links"),
        ("devices:1@0pct", "share must be a percentage"),
        ("devices:1@half", "unknown: use"),
        ("devices:21", "asks for 21 random switches, .* has 20"),
        ("0links", "links must be above 0"),
        ("0pct", "percent must be above 0"),
        ("0.5pct", "rounds to no link: use at least 0.79pct"),
        ("absent.yaml", "no fault file absent.yaml"),
        pytest.param("9" * 5000 + "links", "is unknown: use", id="more digits than Python reads"),
    ],
)
def test_bad_text_is_one_clear_line(text, message):
    with pytest.raises(FaultError, match=message) as error:
        parse_faults(text, K4, 1)
    assert "\n" not in str(error.value)


@given(st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_any_text_parses_or_is_refused_in_one_line(text):
    try:
        parse_faults(text, K4, 1)
    except FaultError as error:
        assert len(str(error).splitlines()) == 1


def write(tmp_path, text):
    path = tmp_path / "faults.yaml"
    path.write_text(text)
    return str(path)


def test_yaml_says_everything(tmp_path):
    path = write(
        tmp_path,
        """
        faults:
          - link: tor0_0->agg0_1
            kind: blackhole
            match: {dst_ip: 10.2.0.0/16, src_ip: 0.0.0.1/0.0.0.1, protocol: tcp, src_port: 0x1/0x1}
            schedule: [[0.1, 0.3], [0.5, 0.6]]
          - {link: tor0_0->agg0_0, rate: 5e-3, kind: corrupt}
          - {device: core0, rate: 0.5}
          - {links: 2}
          - {percent: 10}
          - {devices: 1}
        """,
    )
    plan = parse_faults(path, K4, 1)
    first, second = plan.faults[1], plan.faults[0]
    assert second == Fault(K4.link("tor0_0->agg0_0"), 0.005, "corrupt")
    assert first.kind == "blackhole" and first.rate == 1
    assert first.schedule == ((0.1, 0.3), (0.5, 0.6))
    assert first.match == FlowMatch(
        src_ip=Ternary(1, 1),
        dst_ip=Ternary(0x0A020000, 0xFFFF0000),
        src_port=Ternary(1, 1),
        protocol=Ternary(6, 255),
    )
    assert len(plan.devices) == 2 and K4.switch("core0") in plan.devices


def test_faults_of_different_flows_may_share_a_link(tmp_path):
    entry = "- {link: tor0_0->agg0_1, kind: blackhole, match: {dst_port: %s}}\n"
    path = write(tmp_path, "faults:\n" + entry % 80 + entry % 443)
    plan = parse_faults(path, K4, 1)
    assert len(plan.faults) == 2 and len(plan.links) == 1


faults = st.builds(
    Fault,
    link=st.integers(0, K4.n_links - 1),
    rate=st.floats(1e-9, 1.0),
    kind=st.sampled_from(["drop", "corrupt"]),
    match=st.none()
    | st.builds(
        FlowMatch,
        dst_ip=st.integers(0, 2**32 - 1).map(lambda mask: Ternary(0x0A000001 & mask, mask)),
        src_port=st.none() | st.integers(0, 65535).map(lambda p: Ternary(p, 65535)),
    ),
    schedule=st.lists(st.floats(0, 1e6), unique=True, max_size=6).map(
        lambda t: tuple(zip(*[iter(sorted(t))] * 2, strict=False))
    ),
)


@given(
    st.lists(faults, unique_by=lambda f: f.link, max_size=6),
    st.sets(st.integers(0, K4.n_switches - 1), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_yaml_dump_reads_back_as_itself(tmp_path_factory, faults, devices):
    plan = FaultPlan(tuple(sorted(faults, key=lambda f: f.link)), tuple(sorted(devices)))
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(plan.to_yaml(K4))
    assert parse_faults(str(path), K4, 99) == plan


def test_records_are_plain(tmp_path):
    path = write(
        tmp_path,
        "faults:\n- {link: tor0_0->agg0_1, match: {src_port: 80}, rate: 0.1, schedule: [[0, 1]]}",
    )
    assert parse_faults(path, K4, 1).to_records() == [
        {
            "link": K4.link("tor0_0->agg0_1"),
            "rate": 0.1,
            "kind": "drop",
            "match": {"src_port": "0x50/0xffff"},
            "schedule": [[0.0, 1.0]],
        }
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faults: [{link: a->b, rat: 1}]", r"faults\[0\]: unknown key 'rat'; allowed are percent"),
        ("fault: []", "unknown key 'fault'; allowed are faults|faults: Field required"),
        ("faults: [{links: 1, match: {ip: 1.2.3.4}}]", "unknown key 'ip'; allowed are src_ip"),
        ("faults: [{links: 1, kind: melt}]", r"faults\[0\].kind: must be 'drop', 'blackhole'"),
        ("faults: [{links: 1, share: 50}]", "share is only for the links of a device"),
        ("faults: [{links: 1, device: core0}]", "one of .*; it has links and device"),
        ("faults: [{rate: 0.1}]", "it has none"),
        ("faults: [{links: many}]", r"faults\[0\].links: must be a valid integer"),
        ("faults: [{links: 1, kind: blackhole, rate: 0.5}]", "not 0.5 of it: use rate 1"),
        ("faults: [{links: 1, schedule: [[2, 1]]}]", "ascending and disjoint"),
        ("faults: [{links: 1, schedule: [[1, 2], [1.5, 3]]}]", "ascending and disjoint"),
        ("faults: [{links: 1, match: {}}]", "match is empty"),
        ("faults: [{links: 1, match: {src_ip: 10.0.0.300}}]", "src_ip .* is not a match"),
        ("faults: [{links: 1, match: {src_ip: 10.0.0.1/8}}]", "can never match"),
        ("faults: [{links: 1, match: {src_ip: 10.0.0.0/40}}]", "is not a match"),
        ("faults: [{links: 1, match: {src_port: 70000}}]", "does not fit 16 bits"),
        ("faults: [", "line 1: not valid YAML"),
        ("faults: !!bool maybe", "not valid YAML"),
        ("faults: !!float ''", "not valid YAML"),
        (
            "faults:\n- link: 'a->b'\n  kind: \"\\0\"",
            r"line 3: '\\x00' has characters that a name cannot",
        ),
        ('faults: [{"\\ud800": 1}]', r"line 1: '\\ud800' has characters that a name cannot"),
        ("faults: 5", r"line 1: faults: must be a list of entries, such as - \{link"),
        ("faults: {link: a->b}", "faults: must be a list of entries"),
        ("faults: [tor0_0->agg0_1]", r"faults\[0\]: must be an entry, such as \{link"),
        ("failed_devices: []", "faults: must be a list of entries"),
        ("faults: []\nfailed_devices: core0", "line 2: failed_devices: must be a list of switches"),
        ("faults:\n- links: 1\n  match: 80", r"line 3: faults\[0\].match: must select flows"),
        ("faults: [{links: 1, schedule: 3}]", r"schedule: must be a list of \[start, end\]"),
        ("faults: [{links: 1, schedule: [[1, 2, 3]]}]", r"schedule\[0\]: must be a list of \[st"),
        ("faults:\n- percent: true\n", "line 2: true is a truth value: write a number"),
        ("faults:\n- {links: 1,\n   rate: yes}\n", "line 3: yes is a truth value"),
        ("faults: [{links: 1, match: {src_port: on}}]", "on is a truth value"),
        ("faults:\n- links: 1\n  links: 2\n", "line 3: the key 'links' is given twice"),
        ("faults: [{links: 1}]\nfaults: []", "line 2: the key 'faults' is given twice"),
        ("faults: &a [{links: 1, match: *a}]", "line 1: not valid YAML: an alias stands for"),
        ('faults: "\\u0000\x07"', "not valid YAML: special characters are not allowed"),
        ("- a", "top level must be a mapping"),
        ("", "top level must be a mapping"),
    ],
)
def test_bad_yaml_is_one_clear_line(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(FaultError, match=message) as error:
        parse_faults(path, K4, 1)
    assert "\n" not in str(error.value) and path in str(error.value)


def test_a_schedule_outside_the_run_is_refused_with_its_place(tmp_path):
    path = write(tmp_path, "faults:\n- links: 1\n  schedule: [[0.1, 0.3], [2, 4]]\n")
    parse_faults(path, K4, 1)
    parse_faults(path, K4, 1, duration_s=2.5)
    with pytest.raises(FaultError, match=r"line 3: faults\[0\] is scheduled for 2 to 4 s") as error:
        parse_faults(path, K4, 1, duration_s=2.0)
    assert path in str(error.value) and "more EPOCHS" in str(error.value)


def test_unreadable_fault_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(FaultError, match="not a regular file"):
        parse_faults(str(tmp_path / "pipe.yaml"), K4, 1)
    (tmp_path / "dir.yaml").mkdir()
    with pytest.raises(FaultError, match=r"cannot read .*directory"):
        parse_faults(str(tmp_path / "dir.yaml"), K4, 1)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa\x00")
    with pytest.raises(FaultError, match="not UTF-8"):
        parse_faults(str(tmp_path / "binary.yaml"), K4, 1)
