# SPDX-License-Identifier: Apache-2.0
"""A type that P4Info translates: controllers see its values in 32 bits, the program in 9."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import PROGRAMS, Client, Process, Refused, p4info


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Process("--no-p4", target=("--cpu-port", "1")) as p, Client(p.grpc) as c:
        info = p4info(PROGRAMS / "translated.p4info.txtpb")
        assert {f.bitwidth for t in info.tables for f in t.match_fields} == {32}
        c.configure(info=info, code=(PROGRAMS / "translated.json").read_bytes())
        yield c


def test_entries_are_written_and_read_back(client: Client) -> None:
    for table, match in (("I.exacts", 300), ("I.ways", (5, 0x1FF))):
        entry = client.entry(table, {"meta.port": match}, "I.send", [400], 3 * (table == "I.ways"))
        client.write(("insert", entry))
        wanted = p4runtime_pb2.TableEntry(table_id=client.id("tables", table))
        (found,) = client.read(table_entry=wanted)
        assert found.table_entry.action.action.params[0].value == b"\x01\x90"
        assert len(found.table_entry.match) == 1


def test_a_value_that_does_not_fit_the_program(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.write(("insert", client.entry("I.exacts", {"meta.port": 512}, "I.send", [1])))
    assert refused.value.codes == [code_pb2.OUT_OF_RANGE]
    with pytest.raises(Refused) as refused:
        client.write(("insert", client.entry("I.exacts", {"meta.port": 7}, "I.send", [512])))
    assert refused.value.codes == [code_pb2.OUT_OF_RANGE]


@pytest.mark.parametrize("priority", [1, -1, -(2**31)])
def test_an_entry_of_exact_fields_takes_no_priority(client: Client, priority: int) -> None:
    """A negative one made a second entry with the same match of it, which the switch refused."""
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            client.write(
                ("insert", client.entry("I.exacts", {"meta.port": 9}, "I.send", [1], priority))
            )
        assert refused.value.codes == [code_pb2.INVALID_ARGUMENT]


def test_packets_registers_and_digests(client: Client) -> None:
    digest = p4runtime_pb2.DigestEntry(digest_id=client.id("digests", "sample_t"))
    digest.config.max_list_size = 1
    client.write(("insert", p4runtime_pb2.Entity(digest_entry=digest)))
    out = p4runtime_pb2.PacketOut(payload=b"\x07\x00")
    out.metadata.add(metadata_id=1, value=b"\x01\x41")
    out.metadata.add(metadata_id=2, value=b"\x00")
    client.send(packet=out)
    found = client.receive("packet")
    assert found.payload == b"\x07\x00"
    assert [m.value for m in found.metadata] == [b"\x01\x41", b"\x00"]
    sample = client.receive("digest").data[0]
    value = sample.struct.members[0] if sample.HasField("struct") else sample
    assert value.bitstring == b"\x01\x41"
    wanted = p4runtime_pb2.RegisterEntry(register_id=client.id("registers", "I.last"))
    read = [e.register_entry.data.bitstring for e in client.read(register_entry=wanted)]
    assert read == [b"\0", b"\x01\x41", b"\0", b"\0"]
