# SPDX-License-Identifier: Apache-2.0
"""What no controller should send by P4Runtime: each request gets an error of its own, and none is a
defect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from canary_softswitch.device.messages import code_pb2, p4runtime_pb2
from testbed.softswitch.tests.server.client import (
    JSON,
    P4INFO,
    PROGRAMS,
    SET,
    Client,
    Process,
    Refused,
    p4info,
)
from testbed.softswitch.tests.server.mutations import Mutator, entities
from tests.patience import PATIENCE_S

RATES = PROGRAMS / "rates.p4info.txtpb"
DEFECTS = (code_pb2.INTERNAL, code_pb2.UNKNOWN)
DEFECT_STATUS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE)
FRAME = bytes(range(60))


class Fuzzer:
    """Sends mutated requests to a switch and keeps what it says of its own defects."""

    def __init__(self, process: Process, info: Any, code: bytes, seed: int) -> None:
        self.client = Client(process.grpc)
        self.info, self.code = info, code
        self.client.configure(info=info, code=code)
        self.entities = []
        for e in entities(info):
            self.entities.append(p4runtime_pb2.Entity())
            self.entities[-1].CopyFrom(e)
        self.mutator = Mutator(seed)
        self.rng = self.mutator.rng
        self.defects: list[str] = []
        self.served = 0

    def mutated(self, message: Any) -> Any:
        for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3))):
            self.mutator.mutate(message)
        return message

    def write(self) -> None:
        request = self.client.signed(p4runtime_pb2.WriteRequest())
        for _ in range(self.rng.randrange(1, 6)):
            kind = self.rng.choice((1, 2, 2, 2, 3))
            self.mutated(request.updates.add(type=kind, entity=self.rng.choice(self.entities)))
        self.client.send_write(self.mutator.mutate(request) if self.rng.random() < 0.1 else request)

    def read(self) -> None:
        request = p4runtime_pb2.ReadRequest(device_id=0)
        for _ in range(self.rng.randrange(1, 3)):
            request.entities.add().CopyFrom(self.rng.choice(self.entities))
            self.mutated(request.entities[-1])
        for _ in self.client.stub.Read(request, timeout=PATIENCE_S):
            pass

    def configure(self) -> None:
        request = self.client.signed(SET(action=self.rng.randrange(1, 6)))
        request.config.p4info.CopyFrom(self.info)
        self.mutated(request.config.p4info)
        request.config.p4_device_config = self.code
        self.client.stub.SetForwardingPipelineConfig(
            self.mutator.mutate(request) if self.rng.random() < 0.1 else request, timeout=PATIENCE_S
        )

    def get(self) -> None:
        request = p4runtime_pb2.GetForwardingPipelineConfigRequest()
        self.client.stub.GetForwardingPipelineConfig(self.mutated(request), timeout=PATIENCE_S)
        self.client.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=PATIENCE_S)

    def stream(self) -> None:
        message = p4runtime_pb2.StreamMessageRequest()
        if self.rng.random() < 0.5:
            message.packet.payload = FRAME
        else:
            message.digest_ack.list_id = 1
        self.mutated(message)
        if message.WhichOneof("update") != "arbitration":
            self.client.outbox.put(message)

    def arbitrate(self) -> None:
        """A stream of its own: what is wrong with it ends it."""
        with Client(self.client.address, connect=False) as c:
            c.stream()
            message = p4runtime_pb2.MasterArbitrationUpdate(device_id=0)
            message.election_id.low, message.role.name = 1, "other"
            c.send(arbitration=self.mutated(message))
            answer = c.receive("arbitration", 60)
            if isinstance(answer, grpc.RpcError):
                raise answer

    def once(self) -> None:
        do = self.rng.choices(
            (self.write, self.read, self.configure, self.get, self.stream, self.arbitrate),
            (60, 30, 5, 2, 5, 2),
        )[0]
        try:
            do()
            self.served += 1
        except Refused as e:
            self.served += e.codes.count(code_pb2.OK)
            self.defects += [m for code, m in e.details if code in DEFECTS]
        except grpc.RpcError as e:
            status: Any = e
            if status.code() in DEFECT_STATUS:
                self.defects.append(f"{do.__name__}: {status.code()} {status.details()}")
        while not self.client.inbox.empty():
            self._heard(self.client.inbox.get())

    def _heard(self, message: Any) -> None:
        if isinstance(message, grpc.RpcError):
            self.defects.append(f"the stream ended: {message}")
        elif message.HasField("error") and message.error.canonical_code in DEFECTS:
            self.defects.append(message.error.message)


def fuzz(info: Path, code: Path, seed: int, n: int) -> None:
    with Process("--no-p4", target=("--cpu-port", "100")) as p:
        fuzzer = Fuzzer(p, p4info(info), code.read_bytes(), seed)
        for _ in range(n):
            fuzzer.once()
        fuzzer.client.close()
    assert not fuzzer.defects, fuzzer.defects[:5]
    assert p.popen.returncode == 0 and not p.errors, p.errors[-3000:]
    assert fuzzer.served > n // 20  # not all of them are so wrong that they go no way


def test_mutated_requests() -> None:
    fuzz(RATES, PROGRAMS / "rates.json", 1, 300)
    fuzz(P4INFO, JSON, 1, 60)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 6))
def test_more_mutated_requests(seed: int) -> None:
    fuzz(RATES, PROGRAMS / "rates.json", seed, 4000)
    fuzz(P4INFO, JSON, seed, 800)


@pytest.mark.parametrize("rpc", ["Write", "Read", "SetForwardingPipelineConfig", "StreamChannel"])
def test_bytes_that_are_no_message(rpc: str, process: Process) -> None:
    with Client(process.grpc, connect=False) as c:
        call = c.channel.stream_stream(f"/p4.v1.P4Runtime/{rpc}")
        for data in (b"\xff", b"\x22\xff\xff\xff\xff\x0f", b"\x1a\x7f" * 5000, bytes(100)):
            answers = call(iter([data]))
            with pytest.raises(grpc.RpcError):
                for _ in answers:
                    pass
            assert answers.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_role_has_any_name(connect: Callable[..., Client]) -> None:
    a, b = connect(role="#abc", election=5), connect(role="#5", election=6)
    assert (a.place, b.place) == (code_pb2.OK, code_pb2.OK)
    by_id = p4runtime_pb2.MasterArbitrationUpdate(device_id=0)
    by_id.role.id, by_id.election_id.low = 5, 1  # another role than the one of this name
    with connect(connect=False) as c:
        c.stream()
        c.send(arbitration=by_id)
        answer = c.receive("arbitration")
    assert (answer.role.id, answer.status.code) == (5, code_pb2.OK)


@pytest.mark.parametrize("field", ["packet_count", "byte_count"])
def test_counts_are_not_negative(field: str, client: Client) -> None:
    data = p4runtime_pb2.CounterData(**{field: -1})
    counter = p4runtime_pb2.Entity()
    counter.counter_entry.counter_id = client.id("counters", "CanaryIngress.fault.dropped")
    counter.counter_entry.data.CopyFrom(data)
    rules = client.entry(
        "CanaryIngress.fault.faults", {"port": 1}, "CanaryIngress.fault.lossy", (1,), 1
    )
    client.write(("insert", rules))
    direct = p4runtime_pb2.Entity()
    direct.direct_counter_entry.table_entry.CopyFrom(rules.table_entry)
    direct.direct_counter_entry.data.CopyFrom(data)
    another = client.entry(
        "CanaryIngress.fault.faults", {"port": 2}, "CanaryIngress.fault.lossy", (1,), 1
    )
    another.table_entry.counter_data.CopyFrom(data)
    with pytest.raises(Refused) as e:
        client.write(("modify", counter), ("modify", direct), ("insert", another))
    assert e.value.codes == [code_pb2.INVALID_ARGUMENT] * 3
    assert all("a count is negative" in message for _, message in e.value.details)
    request = p4runtime_pb2.TableEntry(counter_data=p4runtime_pb2.CounterData())
    (left,) = client.read(table_entry=request)  # nothing is half-written, and all can be read
    assert left.table_entry.counter_data == p4runtime_pb2.CounterData()


def test_an_action_that_the_table_has_not(client: Client) -> None:
    info = p4info()
    routes = next(t for t in info.tables if t.preamble.name == "CanaryIngress.routing.routes")
    other = next(a for a in info.actions if a.preamble.name == "CanaryIngress.fault.lossy")
    routes.action_refs.add(id=other.preamble.id)
    with pytest.raises(grpc.RpcError, match="action of table .* is not in the program"):
        client.configure(info=info)


def test_rates_as_large_as_they_can_be(connect: Callable[..., Client]) -> None:
    with connect() as c:
        c.configure(info=p4info(RATES), code=(PROGRAMS / "rates.json").read_bytes())
        rate = (1 << 63) - 1
        meter = p4runtime_pb2.Entity()
        meter.meter_entry.meter_id = c.id("meters", "I.array")
        meter.meter_entry.config.cir = meter.meter_entry.config.pir = rate
        c.write(("modify", meter))
        for e in c.read(meter_entry=meter.meter_entry):
            assert e.meter_entry.config.pir == rate


def test_a_request_has_a_limit(client: Client) -> None:
    client.configure(code=JSON.read_bytes() + b" " * (5 << 20))  # gRPC's own limit is 4 MiB
    with pytest.raises(grpc.RpcError) as e:
        client.configure(code=JSON.read_bytes() + b" " * (17 << 20))
    status: Any = e.value
    assert status.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    client.write(("insert", client.route(0x0A000000, 8, 1)))


def test_a_packet_has_a_limit(client: Client) -> None:
    client.send(packet=p4runtime_pb2.PacketOut(payload=bytes(1 << 20)))
    error = client.receive("error")
    assert error.canonical_code == code_pb2.INVALID_ARGUMENT
    assert error.packet_out == p4runtime_pb2.PacketOutError()  # it does not come back


def test_a_long_reason_is_shortened(client: Client) -> None:
    route = client.route(0x0A000000, 8, 1)
    route.table_entry.match[0].lpm.value = b"\1" * (1 << 20)
    with pytest.raises(Refused) as e:
        client.write(("insert", route))
    ((code, message),) = e.value.details
    assert code == code_pb2.OUT_OF_RANGE and len(message) < 500
