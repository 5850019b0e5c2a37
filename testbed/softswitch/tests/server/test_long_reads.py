# SPDX-License-Identifier: Apache-2.0
"""Reads of many cells: the same entities as one by one, fast, and in little memory."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary_softswitch.device import arrays, table_reads
from canary_softswitch.device.config import ArrayConfig, PipelineConfig
from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import P4Error, answers, encode, p4info_pb2, p4runtime_pb2
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.runtime.instance import METER
from testbed.network.speed import slowness
from testbed.softswitch.tests.server.client import JSON, PROGRAMS, Client, Process, p4info
from tests.patience import PATIENCE_S

CELLS = 1 << 20
MIB = 1 << 20


class NoPorts:
    """Ports without a packet thread."""

    def lock(self) -> Any:
        return contextlib.nullcontext()


def entities(pieces: Any) -> list[Any]:
    return [e for piece in pieces for e in p4runtime_pb2.ReadResponse.FromString(piece).entities]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 128), st.data())
def test_registers(width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, (1 << width) - 1), min_size=1, max_size=40))
    if width > 64:
        array = np.array(
            [(v & (1 << 64) - 1, v >> 64) for v in values], [("lo", "<u8"), ("hi", "<u8")]
        )
    else:
        bits = next(b for b in (8, 16, 32, 64) if width <= b)
        array = np.array(values, f"<u{bits // 8}")
    config = ArrayConfig("register", data.draw(st.integers(1, 2**32 - 1)), "r", len(values), width)
    read = arrays.read_register(config, array, NoPorts(), p4runtime_pb2.RegisterEntry())  # type: ignore
    for i, (e, value) in enumerate(zip(entities(read), values, strict=True)):
        one = p4runtime_pb2.Entity()
        one.register_entry.register_id, one.register_entry.index.index = config.id, i
        one.register_entry.data.bitstring = encode(value)
        assert e == one


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([1, 2, 3]), st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * 2), min_size=1)
)
def test_counters(unit: int, values: list[tuple[int, int]]) -> None:
    array = np.array(values, [("packets", "<u8"), ("bytes", "<u8")])
    config = ArrayConfig("counter", 7, "c", len(values), unit=unit)
    read = arrays.read_counter(config, array, NoPorts(), p4runtime_pb2.CounterEntry())  # type: ignore
    for i, (e, (packets, size)) in enumerate(zip(entities(read), values, strict=True)):
        one = p4runtime_pb2.Entity()
        one.counter_entry.counter_id, one.counter_entry.index.index = 7, i
        one.counter_entry.data.SetInParent()
        if unit != p4info_pb2.CounterSpec.BYTES:
            one.counter_entry.data.packet_count = min(packets, 2**63 - 1)
        if unit != p4info_pb2.CounterSpec.PACKETS:
            one.counter_entry.data.byte_count = min(size, 2**63 - 1)
        assert e == one


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.none()
        | st.tuples(
            *[st.integers(0, 2**53), st.integers(0, 2**63 - 1)] * 2,
        ),
        min_size=1,
    )
)
def test_meters(values: list[Any]) -> None:
    array = np.zeros(len(values), METER)
    for cell, value in zip(array, values, strict=True):
        if value is not None:
            cell["configured"] = 1
            cell["rates"]["rate"] = value[0] / 1e6, value[2] / 1e6
            cell["rates"]["burst"] = value[1], value[3]

    class Meters:
        def meters(self, name: str) -> Any:
            return array

    config = ArrayConfig("meter", 7, "m", len(values))
    read = arrays.read_meter(config, Meters(), NoPorts(), p4runtime_pb2.MeterEntry())  # type: ignore
    for i, (e, value) in enumerate(zip(entities(read), values, strict=True)):
        one = p4runtime_pb2.Entity()
        one.meter_entry.meter_id, one.meter_entry.index.index = 7, i
        if value is not None:
            rates = round(value[0] / 1e6 * 1e6), value[1], round(value[2] / 1e6 * 1e6), value[3]
            c = one.meter_entry.config
            c.cir, c.cburst, c.pir, c.pburst = rates
            c.SetInParent()
        assert e == one


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose register, counter and meter have 1,048,576, 262,144 and 65,536 cells."""
    program = json.loads((PROGRAMS / "hashes.json").read_text())
    program["register_arrays"][0]["size"] = CELLS
    next(c for c in program["counter_arrays"] if not c["is_direct"])["size"] = CELLS // 4
    program["meter_arrays"][0]["size"] = CELLS // 16
    path = tmp_path_factory.mktemp("large") / "large.json"
    path.write_text(json.dumps(program))
    return path


def memory(pid: int, what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def test_a_long_read_takes_little(large: Path) -> None:
    """A register took 3 kB a cell: of 4 million cells, the process was killed at 12 GB."""
    info = p4info(PROGRAMS / "hashes.p4info.txtpb")
    with Process("--no-p4") as p, Client(p.grpc) as c:
        c.configure(info=info, code=large.read_bytes())
        for what, cells in (("register", CELLS), ("counter", CELLS // 4), ("meter", CELLS // 16)):
            entity = p4runtime_pb2.Entity()
            getattr(entity, f"{what}_entry").SetInParent()
            request = p4runtime_pb2.ReadRequest(device_id=c.device, entities=[entity])
            before = memory(p.popen.pid, "VmRSS")
            Path(f"/proc/{p.popen.pid}/clear_refs").write_text("5")  # begins VmHWM anew
            read = c.channel.unary_stream(
                "/p4.v1.P4Runtime/Read", request.__class__.SerializeToString
            )
            n, start = 0, processor_time(p.popen.pid)
            # As bytes: to parse them would take minutes.
            for answer in read(request, timeout=PATIENCE_S):
                assert len(answer) <= MIB
                n += count(answer)
            seconds = processor_time(p.popen.pid) - start
            assert n == cells
            assert memory(p.popen.pid, "VmHWM") - before < 100 * cells + 32 * MIB
            each = seconds / cells
            assert each < 4e-6 * slowness(), f"{what}: {each * 1e6:.2f} us a cell"


def count(answer: bytes) -> int:
    """The entities in a serialized ReadResponse, all of less than 128 bytes."""
    n = at = 0
    while at < len(answer):
        assert answer[at] == 0x0A and answer[at + 1] < 128
        at += 2 + answer[at + 1]
        n += 1
    return n


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_answers_come_while_others_write(large: Path) -> None:
    info = p4info(PROGRAMS / "hashes.p4info.txtpb")
    with Process("--no-p4") as p, Client(p.grpc) as c:
        c.configure(info=info, code=large.read_bytes())
        entity = p4runtime_pb2.Entity()
        entity.register_entry.SetInParent()
        request = p4runtime_pb2.ReadRequest(device_id=c.device, entities=[entity])
        reading = c.stub.Read(request, timeout=PATIENCE_S)
        next(reading)
        # The reader takes no more answers, so that the read cannot end before this write does.
        c.write(("insert", c.entry("I.timed", {"hdr.h.key": 5}, "I.set", [9])))
        reading.cancel()


# ---- tables ----

LONG = 30_000
SIZES = {
    "CanaryIngress.dsm.rules": LONG,
    "CanaryIngress.routing.routes": LONG,
    "CanaryIngress.routing.uplinks": 2,
}


def with_large_tables() -> bytes:
    """The Canary program with room for what these tests add: one for all, to be compiled once."""
    program = json.loads(JSON.read_text())
    for pipeline in program["pipelines"]:
        for table in pipeline["tables"]:
            table["max_size"] = SIZES.get(table["name"], table["max_size"])
    return json.dumps(program).encode()


def random_entry(info: Any, table: Any, some: random.Random) -> Any:
    """An entry of a table with every kind of match left out now and then."""
    e = p4runtime_pb2.TableEntry(table_id=table.preamble.id)
    for f in table.match_fields:
        kind, width = MATCH.Name(f.match_type), f.bitwidth
        value = some.getrandbits(width) >> some.randrange(width)
        if kind != "EXACT" and some.random() < 0.2:
            continue
        m = e.match.add(field_id=f.id)
        if kind == "EXACT":
            m.exact.value = encode(value)
        elif kind == "OPTIONAL":
            m.optional.value = encode(value)
        elif kind == "LPM":
            n = some.randint(1, width)
            m.lpm.value, m.lpm.prefix_len = encode(value >> width - n << width - n), n
        elif kind == "TERNARY":
            mask = some.getrandbits(width) or 1
            m.ternary.value, m.ternary.mask = encode(value & mask), encode(mask)
        else:
            m.range.low, m.range.high = encode(value), encode(some.randint(value, (1 << width) - 2))
    if any(
        MATCH.Name(f.match_type) in ("TERNARY", "RANGE", "OPTIONAL") for f in table.match_fields
    ):
        e.priority = some.randint(1, 2**31 - 1)
    by_id = {a.preamble.id: a for a in info.actions}
    action = by_id[some.choice([r.id for r in table.action_refs])]
    e.action.action.action_id = action.preamble.id
    for p in action.params:
        value = some.getrandbits(p.bitwidth) >> some.randrange(p.bitwidth)
        e.action.action.params.add(param_id=p.id, value=encode(value))
    return e


MATCH = p4info_pb2.MatchField.MatchType


@pytest.mark.parametrize("name", ["matching", "router", "rates", "hashes", "direct"])
def test_tables(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries read many at once are those that are read one by one, in the same order."""
    info, some = p4info(PROGRAMS / f"{name}.p4info.txtpb"), random.Random(9)
    code = (PROGRAMS / f"{name}.json").read_bytes()
    pipeline = device.pipeline_of(PipelineConfig(info, code))
    tried = 0
    for table in info.tables:
        if not table.match_fields or table.implementation_id or table.is_const_table:
            continue
        request = p4runtime_pb2.TableEntry(table_id=table.preamble.id)
        request.counter_data.SetInParent()
        request.meter_config.SetInParent()
        for i in range(60):
            e = random_entry(info, table, some)
            if i % 7 == 0:
                e.metadata = b"mine"
            config = pipeline.tables[table.preamble.id].config
            if config.meter and i % 3:
                c = e.meter_config
                c.cir, c.cburst, c.pir, c.pburst = i, i, 2 * i, 3 * i
            if config.counter:
                e.counter_data.packet_count, e.counter_data.byte_count = i % 2, i
            with contextlib.suppress(P4Error):  # the same match, or no room
                pipeline.write(p4runtime_pb2.Update(type=1, entity={"table_entry": e}))
        entity = p4runtime_pb2.Entity(table_entry=request)
        one_by_one, found = read_both(pipeline, entity, monkeypatch)
        assert sorted(map(str, found)) == sorted(map(str, one_by_one))
        plain = [e for e in one_by_one if not e.table_entry.metadata]
        assert [e for e in found if not e.table_entry.metadata] == plain
        tried += len(found)
        config = pipeline.tables[table.preamble.id].config
        for what in ("counter", "meter"):
            if getattr(config, what):
                entity = p4runtime_pb2.Entity()
                direct = getattr(entity, f"direct_{what}_entry")
                direct.table_entry.table_id = table.preamble.id
                direct.table_entry.priority = one_by_one[-1].table_entry.priority
                alone, found = read_both(pipeline, entity, monkeypatch)
                assert found == alone and found
    assert tried > 10


def read_both(
    pipeline: Pipeline, entity: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], list[Any]]:
    """What a read gives when it makes the entities one by one, and when it makes many at once."""
    out = []
    for few in (1 << 30, 0):
        monkeypatch.setattr(table_reads, "FEW", few)
        pieces = list(pipeline.read(entity))
        assert any(isinstance(piece, bytes) for piece in pieces) == (few == 0)
        out.append([e for p in pieces for e in (entities([p]) if isinstance(p, bytes) else [p])])
    return out[0], out[1]


def test_members_and_groups(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    info = p4info()
    uplinks = next(t for t in info.tables if t.preamble.name.endswith("uplinks"))
    uplinks.size = 2
    pipeline = device.pipeline_of(PipelineConfig(info, with_large_tables()))
    profile, action = uplinks.implementation_id, p4runtime_pb2.Action()
    by_id = {a.preamble.id: a for a in info.actions}
    forward = next(by_id[r.id] for r in uplinks.action_refs if by_id[r.id].params)
    action.action_id = forward.preamble.id
    for p in forward.params:
        action.params.add(param_id=p.id, value=b"\1")

    def write(kind: int, **what: Any) -> None:
        pipeline.write(p4runtime_pb2.Update(type=kind, entity=what))

    write(1, action_profile_member={"action_profile_id": profile, "member_id": 5, "action": action})
    members = [{"member_id": 5, "weight": 2}]
    write(1, action_profile_group={"action_profile_id": profile, "group_id": 9, "members": members})
    entry = p4runtime_pb2.TableEntry(table_id=uplinks.preamble.id)
    for value, field in ((0, "action_profile_member_id"), (1, "action_profile_group_id")):
        entry.ClearField("match")
        entry.match.add(field_id=1).exact.value = bytes([value])
        entry.ClearField("action")
        setattr(entry.action, field, 9 if value else 5)
        write(1, table_entry=entry)
    every = p4runtime_pb2.Entity(table_entry={"table_id": uplinks.preamble.id})
    one_by_one, found = read_both(pipeline, every, monkeypatch)
    assert found == one_by_one and len(found) == 2
    entry.action.action_profile_action_set.action_profile_actions.add(action=action, weight=1)
    write(2, table_entry=entry)
    one_by_one, found = read_both(pipeline, every, monkeypatch)
    assert found == one_by_one
    assert found[1].table_entry.action.HasField("action_profile_action_set")


@pytest.mark.parametrize("name", ["CanaryIngress.dsm.rules", "CanaryIngress.routing.routes"])
def test_a_long_read_of_a_table_takes_little(name: str, device: Device) -> None:
    """Also the first one, of entries that P4Runtime did not write: 18 us an entry."""
    n, info = LONG, p4info()
    pipeline = device.pipeline_of(PipelineConfig(info, with_large_tables()))
    table = pipeline.switch.table(name)
    for i in range(n):
        if name.endswith("rules"):
            table.add([i * 0x9E3779B97F4A7C15 << 24 & (1 << 104) - 1, i], "monitor")
        else:
            action = ["forward", "deliver", "up", "local", "unroutable"][i % 5]
            table.add([(i << 8, 24)], action, [i % 512, i << 20] if i % 5 < 2 else ())
    entity = p4runtime_pb2.Entity()
    entity.table_entry.table_id = next(
        t.preamble.id for t in info.tables if t.preamble.name == name
    )
    start, read = time.process_time(), 0
    for answer in answers(pipeline.read(entity)):
        assert len(answer) <= MIB
        read += count(answer)
    seconds = time.process_time() - start
    assert read == n
    assert seconds / n < 4e-6 * slowness(), f"{seconds / n * 1e6:.2f} us an entry"
    tracemalloc.start()
    for _ in answers(pipeline.read(entity)):
        pass
    assert tracemalloc.get_traced_memory()[1] < 100 * n + MIB
    tracemalloc.stop()
