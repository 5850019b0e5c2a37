# SPDX-License-Identifier: Apache-2.0
"""Every match kind against plain Python models, with entries that come and go."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary_softswitch import Program, SoftSwitchError, Switch, Table

KINDS = {
    "exact_t": 0,
    "lpm_t": 1,
    "lpm12_t": 2,
    "ternary_t": 3,
    "range_t": 4,
    "optional_t": 5,
    "huge_t": 6,
    "slice_t": 7,
}
FULL32 = (1 << 32) - 1


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("matching"))


def verdict(
    sw: Switch,
    table: str,
    a: int = 0,
    b: int = 0,
    c: int = 0,
    d: int = 0,
    wide: int = 0,
    huge: int = 0,
) -> int:
    """Value the table's action set, or the table's number when it missed."""
    data = (
        struct.pack(">IIH", a, b, c << 4 | d)
        + wide.to_bytes(13, "big")
        + huge.to_bytes(20, "big")
        + bytes([KINDS[table]])
    )
    [(_, out)] = sw.process(0, data)
    return out[-1]


def test_exact_with_a_wide_key(sw: Switch) -> None:
    t = sw.table("I.exact_t")
    h = t.add([7, (1 << 104) - 1], "set", [200])
    assert verdict(sw, "exact_t", a=7, wide=(1 << 104) - 1) == 200
    assert verdict(sw, "exact_t", a=7, wide=(1 << 103) - 1) == 0
    assert verdict(sw, "exact_t", a=8, wide=(1 << 104) - 1) == 0
    with pytest.raises(SoftSwitchError, match="same match"):
        t.add([7, b"\xff" * 13], "set", [1])
    t.modify(h, "set", [201])
    assert verdict(sw, "exact_t", a=7, wide=(1 << 104) - 1) == 201
    t.modify(h, "wide", [b"\x01" * 13])
    assert t.entries()[0].params == (int.from_bytes(b"\x01" * 13, "big"),)
    t.delete(h)
    assert verdict(sw, "exact_t", a=7, wide=(1 << 104) - 1) == 0
    assert len(t) == 0


def test_key_of_160_bits(sw: Switch) -> None:
    t = sw.table("I.huge_t")
    values = [0, 1, 1 << 159, (1 << 160) - 1, 0x0123456789ABCDEF << 64]
    for i, v in enumerate(values):
        t.add([v, 3], "set", [100 + i])
    for i, v in enumerate(values):
        assert verdict(sw, "huge_t", huge=v, d=3) == 100 + i
        assert verdict(sw, "huge_t", huge=v ^ 1 << 80, d=3) == 6
        assert verdict(sw, "huge_t", huge=v, d=2) == 6
    assert sorted(e.match[0] for e in t.entries()) == sorted(values)


def test_exact_against_a_dict(sw: Switch) -> None:
    t, model, rng = sw.table("I.exact_t"), {}, random.Random(1)
    handles: dict[tuple[int, int], int] = {}
    for _ in range(6000):
        key = (rng.randrange(60), rng.randrange(20))
        if key in handles and rng.random() < 0.6:
            t.delete(handles.pop(key))
            del model[key]
        elif key not in handles:
            model[key] = rng.randrange(100, 256)
            handles[key] = t.add(key, "set", [model[key]])
        if rng.random() < 0.2:
            probe = (rng.randrange(60), rng.randrange(20))
            assert verdict(sw, "exact_t", a=probe[0], wide=probe[1]) == model.get(probe, 0)
    assert len(t) == len(model)
    assert {e.match: e.params[0] for e in t.entries()} == model
    t.clear()
    assert len(t) == 0
    assert all(verdict(sw, "exact_t", a=k[0], wide=k[1]) == 0 for k in model)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_lpm_against_a_model(load: Callable[..., Program], data: st.DataObject) -> None:
    sw = Switch(load("matching"))
    table, width = data.draw(st.sampled_from([("lpm_t", 32), ("lpm12_t", 12)]))
    t = sw.table("I." + table)
    value = st.integers(0, (1 << width) - 1)
    entries: dict[tuple[int, int, int], int] = {}
    for i in range(data.draw(st.integers(1, 20))):
        plen, d = data.draw(st.integers(0, width)), data.draw(st.integers(0, 1))
        v = data.draw(value) >> (width - plen) << (width - plen)
        d = d if table == "lpm_t" else 0
        if (v, plen, d) in entries:
            continue
        entries[v, plen, d] = 10 + i
        t.add([d, (v, plen)] if table == "lpm_t" else [(v, plen)], "set", [10 + i])
    probes = [data.draw(value) for _ in range(5)] + [v for v, _, _ in entries]
    for probe in probes:
        hits = [
            (plen, x)
            for (v, plen, d), x in entries.items()
            if d == 0 and (probe ^ v) >> (width - plen) == 0
        ]
        expected = max(hits)[1] if hits else KINDS[table]
        got = verdict(sw, table, a=probe) if table == "lpm_t" else verdict(sw, table, c=probe)
        assert got == expected


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_ternary_and_range_against_a_model(
    load: Callable[..., Program], data: st.DataObject
) -> None:
    sw = Switch(load("matching"))
    small = st.integers(0, 7)
    model: list[tuple[int, int, Any, Any, Any, int]] = []
    name = data.draw(st.sampled_from(["ternary_t", "range_t"]))
    t = sw.table("I." + name)
    for i in range(data.draw(st.integers(1, 25))):
        prio = data.draw(st.integers(1, 4))
        pairs = [tuple(sorted((data.draw(small), data.draw(small)))) for _ in range(3)]
        m: list[Any]
        if name == "ternary_t":
            m = [pairs[0], pairs[1], pairs[2][0]]
            m[:2] = [(v & x, x) for v, x in m[:2]]
        else:
            m = [pairs[0], pairs[1], (pairs[2][0] & pairs[2][1], pairs[2][1])]
        try:
            h = t.add(m, "set", [10 + i], priority=prio)
        except SoftSwitchError:
            assert any(x[0] == -prio and [*x[2:5]] == m for x in model)
            continue
        model.append((-prio, h, *m, 10 + i))
        if len(model) > 3 and data.draw(st.booleans()):
            t.delete(model.pop(data.draw(st.integers(0, len(model) - 1)))[1])
    for a in range(8):
        for c in range(0, 8, 2):
            for x in (0, 5):
                hits = []
                for p, h, ma, mc, mx, value in model:
                    if name == "ternary_t":
                        ok = a & ma[1] == ma[0] and c & mc[1] == mc[0] and x == mx
                    else:
                        ok = ma[0] <= a <= ma[1] and mc[0] <= c <= mc[1] and x & mx[1] == mx[0]
                    if ok:
                        hits.append((p, h, value))
                expected = min(hits)[2] if hits else KINDS[name]
                assert verdict(sw, name, a=a, c=c, d=x, b=x) == expected


def test_larger_priority_wins(sw: Switch) -> None:
    t = sw.table("I.ternary_t")
    t.add([(0, 0), (0, 0), 0], "set", [50], priority=1)
    h = t.add([(5, FULL32), (0, 0), 0], "set", [60], priority=10)
    assert verdict(sw, "ternary_t", a=5) == 60
    assert [e.priority for e in t.entries()] == [1, 10]
    t.delete(h)
    t.add([(5, FULL32), (0, 0), 0], "set", [61], priority=1)  # equal: the older one wins
    assert verdict(sw, "ternary_t", a=5) == 50
    with pytest.raises(SoftSwitchError, match="needs a priority"):
        t.add([(6, FULL32), (0, 0), 0], "set", [60])


def test_optional(sw: Switch) -> None:
    t = sw.table("I.optional_t")
    t.add([5, None], "set", [10], priority=2)
    t.add([None, 6], "set", [11], priority=1)
    assert verdict(sw, "optional_t", a=5, c=6) == 10
    assert verdict(sw, "optional_t", a=4, c=6) == 11
    assert verdict(sw, "optional_t", a=4, c=5) == 5


def test_range_is_inclusive_and_checked(sw: Switch) -> None:
    t = sw.table("I.range_t")
    t.add([(10, 20), (0, 4095), (0, 0)], "set", [77], priority=1)
    got = [verdict(sw, "range_t", a=a) for a in (9, 10, 20, 21)]
    assert got == [4, 77, 77, 4]
    with pytest.raises(SoftSwitchError, match="empty"):
        t.add([(3, 2), (0, 4095), (0, 0)], "set", [77], priority=1)


def test_slices(sw: Switch) -> None:
    t = sw.table("I.slice_t")
    t.add([0xAB, (0x10, 0xF0)], "set", [90], priority=1)
    assert verdict(sw, "slice_t", a=0x1234AB56, b=0x1F000000) == 90
    assert verdict(sw, "slice_t", a=0x12AB3456, b=0x1F000000) == 7


def test_full_table(sw: Switch) -> None:
    t = sw.table("I.ternary_t")
    handles = [t.add([(i, FULL32), (0, 0), 0], "set", [1], priority=1) for i in range(128)]
    assert handles == list(range(128))
    with pytest.raises(SoftSwitchError, match="full"):
        t.add([(500, FULL32), (0, 0), 0], "set", [1], priority=1)
    t.delete(17)
    assert t.add([(500, FULL32), (0, 0), 0], "set", [1], priority=1) == 17


def members(sw: Switch) -> tuple[Table, list[int]]:
    """Table with a selector, and members that send to ports 2 to 6."""
    ecmp = sw.action_profile("I.ecmp")
    return sw.table("I.hashed"), [ecmp.add_member("I.send", [p]) for p in range(2, 7)]


def crc16(data: bytes) -> int:
    """CRC-16/ARC, bit by bit."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def test_selector_picks_by_hash(load: Callable[..., Program]) -> None:
    sw = Switch(load("selector"))
    assert crc16(b"123456789") == 0xBB3D
    t, m = members(sw)
    ecmp = sw.action_profile("I.ecmp")
    group = ecmp.add_group([m[4], m[0], m[2]])
    h = t.add_group_entry([(0x1000, 4)], group)
    t.add_member_entry([(0x2000, 4)], m[3])
    for flow in range(0, 65536, 997):
        [(port, _)] = sw.process(0, struct.pack(">HHB", 0x1234, flow, 0))
        assert port == (2, 4, 6)[crc16(struct.pack(">H", flow)) % 3]
    assert [p for p, _ in sw.process(0, struct.pack(">HHB", 0x2001, 1, 0))] == [5]
    [(port, data)] = sw.process(0, struct.pack(">HHB", 0x3001, 1, 0))
    assert (port, data[:2]) == (1, b"\0\0")  # a miss
    t.set_default_member(m[1])
    assert [p for p, _ in sw.process(0, struct.pack(">HHB", 0x3001, 1, 0))] == [3]
    ecmp.modify_group(group, [m[1]])
    assert [p for p, _ in sw.process(0, struct.pack(">HHB", 0x1234, 9, 0))] == [3]
    assert t.entries()[0].group == group
    for call in (lambda: ecmp.delete_group(group), lambda: ecmp.delete_member(m[1])):
        with pytest.raises(SoftSwitchError, match="still used"):
            call()
    t.delete(h)
    ecmp.delete_group(group)
    t.reset_default()
    ecmp.delete_member(m[1])


def test_action_profile(load: Callable[..., Program]) -> None:
    sw = Switch(load("selector"))
    ap = sw.action_profile("I.ap")
    m = ap.add_member("set", [9])
    sw.table("I.direct").add_member_entry([5], m)
    assert sw.process(0, struct.pack(">HHB", 5, 0, 0))[0][1][4] == 9
    ap.modify_member(m, "set", [8])
    assert sw.process(0, struct.pack(">HHB", 5, 0, 0))[0][1][4] == 8
    with pytest.raises(SoftSwitchError, match="no selector"):
        ap.add_group([m])
    with pytest.raises(SoftSwitchError, match="add_member_entry"):
        sw.table("I.direct").add([1], "set", [1])
    with pytest.raises(SoftSwitchError, match="no member 7"):
        sw.table("I.direct").add_member_entry([1], 7)


def test_a_table_outlives_its_switch(load: Callable[..., Program]) -> None:
    """Whoever holds a table, a profile or a view may change it; the switch need not be kept."""
    table = Switch(load("selector")).table("I.hashed")
    profile = Switch(load("selector")).action_profile("I.ap")
    seen = Switch(load("state")).register("I.r32")
    gc.collect()
    assert table.entries() == []
    assert profile.add_member("set", [3]) == 0
    seen[0] = 7
    assert seen[0] == 7


def test_a_prefix_of_no_bits_beside_an_exact_key(sw: Switch) -> None:
    t = sw.table("I.lpm_t")
    t.add([3, (0, 0)], "set", [200])
    assert verdict(sw, "lpm_t", a=77, d=3) == 200
    assert verdict(sw, "lpm_t", a=77, d=4) == KINDS["lpm_t"]


def test_prefixes_of_one_field_come_and_go(load: Callable[..., Program]) -> None:
    """The first and the last key, prefixes in prefixes, and more than are kept as a tree."""
    sw, rng = Switch(load("matching")), random.Random(5)
    t, there, most = sw.table("I.lpm12_t"), {}, 0
    for step in range(1200):
        plen = rng.choice([0, 1, 4, 8, 11, 12, 12, 12])
        key = rng.choice([0, 4095, rng.randrange(4096)]) >> 12 - plen << 12 - plen, plen
        if key in there and (step < 300 or step > 800):
            t.delete(there.pop(key)[0])
        elif key not in there:
            there[key] = t.add([key], "set", [10 + step % 240]), 10 + step % 240
        if step % 7 and step > 300:
            continue
        for probe in (0, 4095, rng.randrange(4096), key[0]):
            fits = [k for k in there if probe >> 12 - k[1] == k[0] >> 12 - k[1]]
            right = there[max(fits, key=lambda k: k[1])][1] if fits else KINDS["lpm12_t"]
            assert verdict(sw, "lpm12_t", c=probe) == right
        most = max(most, len(there))
    assert most > 256
