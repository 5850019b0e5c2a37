# SPDX-License-Identifier: Apache-2.0
"""What a hostile or broken client does to a switch process, and how the process bears it."""

from __future__ import annotations

import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from p4.v1 import p4runtime_pb2_grpc

from canary_softswitch.device.messages import p4runtime_pb2
from testbed.softswitch.tests.server.client import Client, Process
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.thrift_client import RegisterClient
from tests.patience import PATIENCE_S

CPU = 100
NOTHING = (b"",)
GARBAGE = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS's greeting
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 40,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5),  # right, and no more
    struct.pack(">i", (1 << 31) - 1),  # Thrift: a name or a frame of 2 GB
    struct.pack(">Ii", 0x80010001, (1 << 31) - 1),
    struct.pack(">Ii", 0x80010001, 100),  # the name does not come
    bytes(range(256)),
)


class Memory:
    """The memory of a process from now on."""

    def __init__(self, process: Process) -> None:
        self._folder = Path(f"/proc/{process.popen.pid}")
        self._before = self._read("VmRSS")
        (self._folder / "clear_refs").write_text("5")  # its peak is measured anew

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

    def grown(self) -> float:
        """Return by how much it was larger at its peak than before, in MiB."""
        return (self._read("VmHWM") - self._before) / 1024


def works(c: Client) -> None:
    """The primary controller writes, reads and gets a packet."""
    route = c.route(0x0A000000, 8, CPU)
    c.write(("insert", route))
    assert [e.table_entry.match for e in c.read(table_entry=route.table_entry)]
    c.send(packet=p4runtime_pb2.PacketOut(payload=udp()))
    assert c.receive("packet").payload
    c.write(("delete", route))


def thrift_works(process: Process) -> None:
    """A new client of Thrift is served."""
    with RegisterClient(process.thrift) as r:
        assert len(r.read_all("CanaryEgress.usm.row0.count")) > 0


@contextmanager
def more_files(n: int) -> Iterator[None]:
    """Let this process open ``n`` files more than now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft + n, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def connections(
    port: int, n: int, says: tuple[bytes, ...] = NOTHING
) -> Iterator[list[socket.socket]]:
    """Open connections that say one thing each, and no more. The server may close them."""
    with more_files(n), ExitStack() as stack:
        opened = []
        for i in range(n):
            s = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            stack.enter_context(s)
            with suppress(OSError):  # it was closed
                s.sendall(says[i % len(says)])
            opened.append(s)
        yield opened


def closed(s: socket.socket) -> bool:
    """Return whether the server has closed a connection."""
    s.setblocking(False)
    try:
        while s.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def channel(address: str, stack: ExitStack) -> Any:
    """A connection of its own to P4Runtime."""
    made = grpc.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),))
    stack.callback(made.close)
    return made


def half_sent(channel: Any, rpc: str, stack: ExitStack) -> Any:
    """Begin a call whose request never comes."""
    stop = threading.Event()
    stack.callback(stop.set)
    call = channel.stream_stream(f"/p4.v1.P4Runtime/{rpc}")(iter(stop.wait, True))
    stack.callback(call.cancel)
    return call


class Stream:
    """A stream that sends some requests, and another again and again, ``every_s`` seconds. Its
    replies wait until ``end``."""

    def __init__(
        self, channel: Any, *requests: Any, then: Any = None, every_s: float = 0.0
    ) -> None:
        self._stop = threading.Event()
        self._every_s = every_s
        self.sent = 0
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        self.replies = stub.StreamChannel(self._requests(requests, then))

    def _requests(self, requests: tuple[Any, ...], then: Any) -> Iterator[Any]:
        yield from requests
        while then is not None and not self._stop.wait(self._every_s):
            self.sent += 1
            yield then
        self._stop.wait()

    def half_close(self) -> None:
        """Send no more."""
        self._stop.set()

    def end(self) -> grpc.StatusCode:
        """Read everything that is there, and return the status of the stream."""
        self._stop.set()
        with suppress(grpc.RpcError):
            for _ in self.replies:
                pass
        return self.replies.code()

    def close(self) -> None:
        self._stop.set()
        self.replies.cancel()


def arbitration(election: int, role: str = "") -> Any:
    """The message that makes a stream a controller."""
    m = p4runtime_pb2.StreamMessageRequest()
    m.arbitration.device_id, m.arbitration.election_id.low = 0, election
    m.arbitration.role.name = role
    return m


def packet_out(size: int = 1000) -> Any:
    """A packet that comes back to the controller by the route of ``works``."""
    frame = udp()
    payload = frame + bytes(max(0, size - len(frame)))
    return p4runtime_pb2.StreamMessageRequest(packet=p4runtime_pb2.PacketOut(payload=payload))
