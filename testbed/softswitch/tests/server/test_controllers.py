# SPDX-License-Identifier: Apache-2.0
"""Arbitration, pipeline configuration, and what is refused to whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import JSON, PROGRAMS, Client, Process, p4info

Connect = Callable[..., Client]


@pytest.fixture
def process() -> Iterator[Process]:
    """A process for each test: it remembers the highest election id that it has seen."""
    with Process("--no-p4", target=("--cpu-port", "100")) as p:
        yield p


ROUTES = "CanaryIngress.routing.routes"


def refused(code: grpc.StatusCode, call: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as e:
        call()
    error: Any = e.value
    assert error.code() == code
    return error.details()


def test_highest_election_id_is_primary(connect: Connect) -> None:
    low, high = connect(election=5), connect(election=9)
    assert low.place == code_pb2.OK  # it was alone
    assert high.place == code_pb2.OK
    news = low.receive("arbitration")
    assert (news.status.code, news.election_id.low) == (code_pb2.ALREADY_EXISTS, 9)
    high.configure()
    assert "not primary" in refused(grpc.StatusCode.PERMISSION_DENIED, low.configure)
    refused(
        grpc.StatusCode.PERMISSION_DENIED,
        lambda: low.write(("insert", low.route(0x0A000000, 8, 1))),
    )
    high.write(("insert", high.route(0x0A000000, 8, 1)))
    assert len(low.read(table_entry=p4runtime_pb2.TableEntry())) == 1  # a backup may read


def test_without_its_primary_a_device_waits_for_a_new_one(connect: Connect) -> None:
    """P4Runtime, "Client Arbitration": a backup does not become primary by itself."""
    low, high = connect(election=5), connect(election=9)
    low.receive("arbitration")
    high.configure()
    high.close()
    news = low.receive("arbitration")
    assert (news.status.code, news.election_id.low) == (code_pb2.NOT_FOUND, 9)
    write = ("insert", low.route(0x0A000000, 8, 1))
    for low.election in (5, 9):  # 9 is that of the controller that has gone
        refused(grpc.StatusCode.PERMISSION_DENIED, lambda: low.write(write))
    low.election = 8
    low.arbitrate()
    assert low.place == code_pb2.NOT_FOUND
    low.election = 9
    low.arbitrate()
    assert low.place == code_pb2.OK
    low.write(write)
    again = connect(election=8)
    assert again.place == code_pb2.ALREADY_EXISTS


def test_a_primary_may_step_back(connect: Connect) -> None:
    a, b = connect(election=5), connect(election=4)
    a.election = 3
    a.arbitrate()
    assert a.place == code_pb2.NOT_FOUND
    news = b.receive("arbitration")
    assert (news.status.code, news.election_id.low) == (code_pb2.NOT_FOUND, 5)
    b.election = 5
    b.arbitrate()
    assert b.place == code_pb2.OK
    assert a.receive("arbitration").status.code == code_pb2.ALREADY_EXISTS


def test_a_stream_keeps_its_device(connect: Connect) -> None:
    a = connect(election=5)
    a.send(arbitration=p4runtime_pb2.MasterArbitrationUpdate(device_id=7))
    assert a.receive("arbitration").code() == grpc.StatusCode.FAILED_PRECONDITION


def test_election_ids_change_and_collide(connect: Connect) -> None:
    a, b = connect(election=5), connect(election=4)
    assert b.place == code_pb2.ALREADY_EXISTS
    b.election = 6
    b.arbitrate()
    assert b.place == code_pb2.OK
    assert a.receive("arbitration").status.code == code_pb2.ALREADY_EXISTS
    c = connect(connect=False, election=6)
    c.stream()
    c.send(
        arbitration=p4runtime_pb2.MasterArbitrationUpdate(
            device_id=0, election_id=p4runtime_pb2.Uint128(low=6)
        )
    )
    assert c.receive().code() == grpc.StatusCode.INVALID_ARGUMENT


def test_without_an_election_id_one_stays_backup(connect: Connect) -> None:
    assert connect(election=0).place == code_pb2.NOT_FOUND


@pytest.fixture(scope="module")
def without_primary() -> Iterator[Process]:
    """A process which has never had a primary controller."""
    with Process("--no-p4") as p:
        yield p


@pytest.mark.parametrize("action", ["VERIFY", "VERIFY_AND_SAVE", "VERIFY_AND_COMMIT", "COMMIT"])
def test_without_a_primary_nothing_is_configured_or_written(
    action: str, without_primary: Process
) -> None:
    """A VERIFY wants what a write wants: it runs the compiler on what it is given."""
    p = without_primary
    with Client(p.grpc, connect=False, election=0) as alone:
        calls = (
            lambda: alone.configure(action, code=b"not a program"),
            lambda: alone.write(("insert", alone.route(0x0A000000, 8, 1))),
        )
        for alone.election in (0, 1):  # 1 is nobody's
            for call in calls:
                assert refused(grpc.StatusCode.PERMISSION_DENIED, call) == "not primary"
        with Client(p.grpc, election=0) as backup:
            assert backup.place == code_pb2.NOT_FOUND
            for call in calls:
                assert refused(grpc.StatusCode.PERMISSION_DENIED, call) == "not primary"


def test_roles_have_their_own_primary(connect: Connect) -> None:
    a, b = connect(election=5), connect(election=3, role="reader")
    assert (a.place, b.place) == (code_pb2.OK, code_pb2.OK)
    b.device = 0
    b.role = "other"
    b.send(
        arbitration=p4runtime_pb2.MasterArbitrationUpdate(
            device_id=0, role=p4runtime_pb2.Role(name="other")
        )
    )
    assert b.receive("arbitration").code() == grpc.StatusCode.FAILED_PRECONDITION


def test_wrong_device_and_order(connect: Connect) -> None:
    c = connect(connect=False)
    c.stream()
    c.send(arbitration=p4runtime_pb2.MasterArbitrationUpdate(device_id=7))
    assert c.receive().code() == grpc.StatusCode.NOT_FOUND
    d = connect(connect=False)
    d.stream()
    d.send(packet=p4runtime_pb2.PacketOut(payload=b"x"))
    assert d.receive().code() == grpc.StatusCode.FAILED_PRECONDITION
    e = connect()
    e.device = 7
    for call in (e.configure, e.write, lambda: e.read(table_entry=p4runtime_pb2.TableEntry())):
        assert "device 7" in refused(grpc.StatusCode.NOT_FOUND, call)


def test_before_a_pipeline_is_set() -> None:
    with Process("--no-p4", "--device-id", "4") as p, Client(p.grpc, device=4) as c:
        for call in (
            lambda: c.read(table_entry=p4runtime_pb2.TableEntry()),
            lambda: c.write(("insert", c.route(0, 8, 1))),
            lambda: c.stub.GetForwardingPipelineConfig(
                p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=4)
            ),
        ):
            assert "pipeline" in refused(grpc.StatusCode.FAILED_PRECONDITION, call)


def test_json_at_the_start() -> None:
    with Process(str(JSON)) as p, Client(p.grpc) as c:
        c.write(("insert", c.route(0x0A000000, 8, 1)))
        assert len(c.read(table_entry=p4runtime_pb2.TableEntry())) == 1


def test_verify_and_commit(connect: Connect, client: Client) -> None:
    client.write(("insert", client.route(0x0A000000, 8, 1)))
    every = p4runtime_pb2.TableEntry()
    client.configure("VERIFY")
    assert len(client.read(table_entry=every)) == 1
    client.configure("RECONCILE_AND_COMMIT", cookie=77)  # the same program: all stays
    assert len(client.read(table_entry=every)) == 1
    request = p4runtime_pb2.GetForwardingPipelineConfigRequest(device_id=0)
    config = client.stub.GetForwardingPipelineConfig(request).config
    assert config.p4info == client.info
    assert config.p4_device_config == JSON.read_bytes()
    assert config.cookie.cookie == 77
    request.response_type = request.COOKIE_ONLY
    config = client.stub.GetForwardingPipelineConfig(request).config
    assert not config.HasField("p4info") and not config.p4_device_config
    client.configure("VERIFY_AND_SAVE")
    assert len(client.read(table_entry=every)) == 1
    client.configure("COMMIT")
    assert len(client.read(table_entry=every)) == 0
    refused(grpc.StatusCode.FAILED_PRECONDITION, lambda: client.configure("COMMIT"))


def test_reconcile_keeps_entries(client: Client) -> None:
    client.write(("insert", client.route(0x0A000000, 8, 1)))
    other = JSON.read_bytes() + b"\n"
    client.configure("RECONCILE_AND_COMMIT", code=other)
    assert len(client.read(table_entry=p4runtime_pb2.TableEntry())) == 1
    without = p4info()
    kept = [t for t in without.tables if t.preamble.name != ROUTES]
    del without.tables[:]
    without.tables.extend(kept)
    info = client.info
    assert "reconcile" in refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: client.configure("RECONCILE_AND_COMMIT", info=without),
    )
    client.info = info
    assert len(client.read(table_entry=p4runtime_pb2.TableEntry())) == 1


def test_bad_configurations_change_nothing(client: Client) -> None:
    info, bad = client.info, grpc.StatusCode.INVALID_ARGUMENT
    client.write(("insert", client.route(0x0A000000, 8, 1)))
    assert "empty" in refused(bad, lambda: client.configure(code=b""))
    assert "not JSON" in refused(bad, lambda: client.configure(code=b"{"))
    assert "BMv2" in refused(bad, lambda: client.configure(code=b"{}"))
    router = (PROGRAMS / "router.json").read_bytes()
    assert "not in the program" in refused(bad, lambda: client.configure(code=router))
    wrong = p4info()
    wrong.tables[2].match_fields[0].bitwidth = 10
    assert "width" in refused(bad, lambda: client.configure(info=wrong))
    refused(bad, lambda: client.configure("UNSPECIFIED"))
    client.info = info
    assert len(client.read(table_entry=p4runtime_pb2.TableEntry())) == 1


def test_unsupported_program(client: Client) -> None:
    code = JSON.read_bytes().replace(
        b'"extern_instances" : []', b'"extern_instances" : [{"name": "e", "id": 0}]'
    )
    message = refused(grpc.StatusCode.UNIMPLEMENTED, lambda: client.configure(code=code))
    assert "extern object 'e'" in message and "\n" not in message


def test_capabilities(client: Client) -> None:
    answer = client.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest())
    assert answer.p4runtime_api_version.startswith("1.")
