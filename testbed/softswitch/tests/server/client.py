# SPDX-License-Identifier: Apache-2.0
"""A small P4Runtime client and a switch process, for the tests."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format
from p4.v1 import p4runtime_pb2_grpc

from canary_softswitch.device.messages import p4info_pb2, p4runtime_pb2, status_pb2
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[4]
JSON = ROOT / "p4" / "build" / "canary.json"
P4INFO = ROOT / "p4" / "build" / "canary.p4info.txtpb"
PROGRAMS = ROOT / "testbed" / "softswitch" / "tests" / "programs"
READY = re.compile(r"P4Runtime on (\S+), Thrift on 127.0.0.1:(\d+)")
SET = p4runtime_pb2.SetForwardingPipelineConfigRequest
KINDS = {"insert": 1, "modify": 2, "delete": 3}


def p4info(path: Path = P4INFO) -> Any:
    return text_format.Parse(path.read_text(), p4info_pb2.P4Info())


class Process:
    """A running switch process; ``grpc`` and ``thrift`` say where it listens."""

    def __init__(
        self, *arguments: str, target: tuple[str, ...] = (), address: str = "127.0.0.1:0"
    ) -> None:
        self.popen = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "canary_softswitch.process.single",
                "--thrift-port",
                "0",
                *arguments,
                "--",
                "--grpc-server-addr",
                address,
                *target,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout
        line = self.popen.stdout.readline()
        match = READY.search(line)
        if not match:
            raise RuntimeError(f"{line}{self.popen.communicate()[1]}")
        self.grpc, self.thrift = match[1], int(match[2])
        self.elections = 0  # that tests have used
        self.stdout = ""  # after the first line; set at the end
        self.errors = ""

    def stop(self) -> int:
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.stdout, self.errors = self.popen.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.communicate()
        return self.popen.returncode

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Refused(Exception):
    """A Write with failed updates: (code, message) of each, and the message of the whole."""

    def __init__(self, details: list[tuple[int, str]], message: str) -> None:
        super().__init__(f"{message} {details}")
        self.details = details
        self.message = message

    @property
    def codes(self) -> list[int]:
        return [c for c, _ in self.details]


class Client:
    """A controller of one device."""

    def __init__(
        self, address: str, device: int = 0, election: int = 1, role: str = "", connect: bool = True
    ) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        self.device, self.election, self.role = device, election, role
        self.info = p4info()
        self.inbox: queue.Queue[Any] = queue.Queue()
        self.skipped: list[Any] = []  # received while another kind was waited for
        self.outbox: queue.Queue[Any] = queue.Queue()
        if connect:
            self.stream()
            self.arbitrate()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.outbox.put(None)
        self.channel.close()

    # ---- stream ----

    def stream(self) -> None:
        replies = self.stub.StreamChannel(iter(self.outbox.get, None))

        def receive() -> None:
            try:
                for m in replies:
                    self.inbox.put(m)
            except grpc.RpcError as e:
                self.inbox.put(e)

        threading.Thread(target=receive, daemon=True).start()

    def send(self, **what: Any) -> None:
        self.outbox.put(p4runtime_pb2.StreamMessageRequest(**what))

    def arbitrate(self) -> None:
        m = p4runtime_pb2.MasterArbitrationUpdate(device_id=self.device)
        if self.election:
            m.election_id.low = self.election
        if self.role:
            m.role.name = self.role
        self.send(arbitration=m)
        self.place = self.receive("arbitration").status.code

    def receive(self, which: str = "", timeout: float = PATIENCE_S) -> Any:
        """The next message of a kind. Those of other kinds are kept: a switch may send a
        packet's digest before the packet or after it."""
        for i, m in enumerate(self.skipped):
            if m.HasField(which):
                return getattr(self.skipped.pop(i), which)
        deadline = time.monotonic() + timeout
        while True:
            m = self.inbox.get(timeout=max(0.001, deadline - time.monotonic()))
            if isinstance(m, grpc.RpcError):
                return m
            if m.HasField(which):
                return getattr(m, which)
            self.skipped.append(m)

    # ---- requests ----

    def signed(self, request: Any) -> Any:
        request.device_id = self.device
        request.role = self.role
        if self.election:
            request.election_id.low = self.election
        return request

    def configure(
        self,
        action: str = "VERIFY_AND_COMMIT",
        info: Any = None,
        code: bytes | None = None,
        cookie: int | None = None,
    ) -> None:
        r = self.signed(SET(action=SET.Action.Value(action)))
        r.config.p4info.CopyFrom(self.info if info is None else info)
        r.config.p4_device_config = JSON.read_bytes() if code is None else code
        if cookie is not None:
            r.config.cookie.cookie = cookie
        self.stub.SetForwardingPipelineConfig(r, timeout=PATIENCE_S)
        if info is not None:
            self.info = info

    def write(self, *updates: tuple[str, Any]) -> None:
        r = self.signed(p4runtime_pb2.WriteRequest())
        for kind, entity in updates:
            r.updates.add(type=KINDS[kind], entity=entity)
        self.send_write(r)

    def send_write(self, request: Any) -> None:
        try:
            self.stub.Write(request, timeout=PATIENCE_S)
        except grpc.RpcError as e:
            call: Any = e
            metadata = dict(call.trailing_metadata())
            if "grpc-status-details-bin" not in metadata:
                raise
            status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
            out = []
            for d in status.details:
                error = p4runtime_pb2.Error()
                assert d.Unpack(error)
                out.append((error.canonical_code, error.message))
            raise Refused(out, call.details()) from None

    def read(self, **what: Any) -> list[Any]:
        r = p4runtime_pb2.ReadRequest(device_id=self.device)
        r.entities.add(**what)
        return [e for response in self.stub.Read(r, timeout=PATIENCE_S) for e in response.entities]

    # ---- entities by names ----

    def id(self, kind: str, name: str) -> int:
        return next(o.preamble.id for o in getattr(self.info, kind) if o.preamble.name == name)

    def action(self, name: str, *values: int) -> Any:
        a = next(a for a in self.info.actions if a.preamble.name == name)
        out = p4runtime_pb2.Action(action_id=a.preamble.id)
        for p, v in zip(a.params, values, strict=True):
            out.params.add(param_id=p.id, value=v.to_bytes((p.bitwidth + 7) // 8, "big"))
        return out

    def entry(
        self,
        table: str,
        match: dict[str, Any],
        action: str = "",
        values: Any = (),
        priority: int = 0,
    ) -> Any:
        """Entity of a table entry; int exact, (value, n) lpm or the pair the field takes."""
        t = next(t for t in self.info.tables if t.preamble.name == table)
        e = p4runtime_pb2.Entity()
        out = e.table_entry
        out.table_id, out.priority = t.preamble.id, priority
        for f in t.match_fields:
            if f.name not in match:
                continue
            v, m, size = match[f.name], out.match.add(field_id=f.id), (f.bitwidth + 7) // 8
            if isinstance(v, int):
                (m.optional if f.match_type == 6 else m.exact).value = v.to_bytes(size, "big")
                continue
            first, second = v[0].to_bytes(size, "big"), v[1].to_bytes(max(size, 4), "big")
            if f.match_type == 3:
                m.lpm.value, m.lpm.prefix_len = first, v[1]
            elif f.match_type == 4:
                m.ternary.value, m.ternary.mask = first, second
            else:
                m.range.low, m.range.high = first, second
        if action:
            out.action.action.CopyFrom(self.action(action, *values))
        return e

    def route(
        self, address: int, n: int, port: int, mac: int = 0x020000000001, action: str = "deliver"
    ) -> Any:
        return self.entry(
            "CanaryIngress.routing.routes",
            {"hdr.ipv4.dst_ip": (address, n)},
            f"CanaryIngress.routing.{action}",
            (port, mac),
        )


def eventually(what: Any, timeout: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
