# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime session with one switch: writes, reads and the messages of its stream.

When a switch stops answering, `Connection.lost` gives the reason, writes to it are discarded and
reads from it are empty, so that a run continues without it until `Connection.reconnect`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.rpc import code_pb2
from google.rpc import status_pb2 as _status_pb2
from p4.v1 import p4runtime_pb2 as _p4runtime_pb2
from p4runtime_sh.p4runtime import P4RuntimeClient, P4RuntimeException

from testbed.errors import UserError

# Protobuf creates these classes at run time, so a type checker does not know them.
p4runtime_pb2: Any = _p4runtime_pb2
status_pb2: Any = _status_pb2

T = TypeVar("T")

_MAX_UPDATES = 500  # a write request stays well below gRPC's 4 MB
_ANSWERING_S = 30
_CONNECTING_S = 60  # a busy processor takes more than p4runtime-sh's 2 s
_ENDING_S = 5
_CUT = "its P4Runtime connection broke"
TAKEN = "another controller took over"
ELECTION_ID = 1 << 63
"""The election ID of this testbed's controller.

Clients that only read use a lower one; a client that takes over the switch uses a higher one
(the default of p4runtime-sh is 2^64).
"""

_GONE = {
    grpc.StatusCode.UNAVAILABLE: _CUT,
    grpc.StatusCode.CANCELLED: _CUT,
    grpc.StatusCode.DEADLINE_EXCEEDED: "it did not answer in {:.0f} s",
}


class RemoteError(UserError):
    """A switch refused a request or cannot be reached. The message is one line."""


class Connection:
    """A session as the switch's primary client. Not thread safe.

    Args:
        name: Of the switch, for messages.
        address: Of its P4Runtime server, as gRPC takes it: ``host:port`` or ``unix:PATH``.
        device_id: The device ID that the switch process was started with.
        election_id: The client with the highest one is the primary, which may write.
        patience: How many times longer than usual to wait for the switch.

    Raises:
        RemoteError: No P4Runtime server answers as primary.
    """

    def __init__(
        self, name: str, address: str, device_id: int, election_id: int, patience: float = 1.0
    ) -> None:
        self.name = name
        self.lost = ""
        self._answering_s = _ANSWERING_S * patience
        self._server = address, device_id, election_id, round(_CONNECTING_S * patience)
        self._client = _connect(name, *self._server)
        self._held: list[Any] | None = None
        self._primary = True

    def is_primary(self) -> bool:
        """Return False while another controller has the switch, which is `lost` then.

        The switch sends a message to all its controllers whenever its primary changes. When the
        other controller has left, BMv2 makes this one primary by itself; as P4Runtime has it, a
        switch has no primary then, and this controller asks to be it.
        """
        incoming: queue.Queue[Any] = self._client.stream_in_q["arbitration"]
        with suppress(queue.Empty):
            message = incoming.get_nowait()
            while message is not None:
                code = message.arbitration.status.code
                self._primary = code == code_pb2.OK
                if not self._primary:
                    self.give_up(TAKEN)
                asks = code == code_pb2.NOT_FOUND
                if asks:
                    self._arbitrate(message.arbitration.election_id)
                message = incoming.get(asks, self._answering_s)
        return self._primary

    def _arbitrate(self, highest: Any) -> None:
        """Ask to be primary with the highest election ID that the switch has seen."""
        self._client.election_id = highest.high, highest.low
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self._client.device_id
        request.arbitration.election_id.CopyFrom(highest)
        self._client.stream_out_q.put(request)

    def resume(self) -> None:
        """Use a switch again after another controller had it; held-back writes are discarded."""
        self._held, self.lost = None, ""

    def reconnect(self) -> None:
        """Begin a new session with a switch that has restarted; held-back writes are discarded.

        Raises:
            RemoteError: No P4Runtime server answers as primary.
        """
        threading.Thread(target=_end, args=(self._client,), daemon=True).start()
        self._client = _connect(self.name, *self._server)
        self._primary = True
        self.resume()

    def cut(self) -> None:
        """Cancel the stream, as when the switch is lost; the session is not closed."""
        self._client.stream.cancel()

    def close(self) -> None:
        """End the session, waiting at most ``_ENDING_S`` seconds for it.

        An exception raised by a signal handler may have left a gRPC lock taken, which would make
        this wait forever; then the end of the process ends the session.
        """
        ending = threading.Thread(target=_end, args=(self._client,), daemon=True)
        ending.start()
        ending.join(_ENDING_S)

    def give_up(self, reason: str) -> None:
        """Mark the switch as `lost` for ``reason``; an earlier reason is kept."""
        self.lost = self.lost or reason

    def has_program(self) -> bool:
        """Return True if the switch has a pipeline configuration with tables."""
        try:
            return bool(self.attempt(lambda: self._client.get_p4info().tables))
        except RemoteError:
            return False

    def push_program(self, p4info: Any, program: Path) -> None:
        """Load a program into the switch (``SetForwardingPipelineConfig``).

        Args:
            p4info: The program's P4Info message.
            program: The file of its BMv2 JSON.

        Raises:
            RemoteError: The switch refuses it.
        """
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self._client.device_id,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.election_id.high, request.election_id.low = self._client.election_id
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = program.read_bytes()
        self.attempt(lambda: self._client.stub.SetForwardingPipelineConfig(request))

    def hold(self) -> None:
        """Collect writes from now on and send them together with `send`."""
        self._held = self._held or []

    @property
    def waiting(self) -> bool:
        """Return True if writes are held back."""
        return bool(self._held)

    def send(self) -> None:
        """Send the held-back writes; later writes are sent at once again."""
        held, self._held = self._held or [], None
        self._send(held)

    def write(self, kind: str, what: str, message: Any) -> None:
        """Write an entity now, or with `send` if writes are held back.

        Args:
            kind: ``INSERT``, ``MODIFY`` or ``DELETE``.
            what: The field of P4Runtime's ``Entity``, as ``table_entry``.
            message: The entity's message.
        """
        update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.Type.Value(kind))
        getattr(update.entity, what).CopyFrom(message)
        if self._held is None:
            self._send([update])
        else:
            self._held.append(update)

    def _send(self, updates: list[Any]) -> None:
        for at in range(0, len(updates), _MAX_UPDATES):
            request = p4runtime_pb2.WriteRequest(device_id=self._client.device_id)
            request.election_id.high, request.election_id.low = self._client.election_id
            request.updates.extend(updates[at : at + _MAX_UPDATES])
            self.attempt(
                lambda request=request: self._client.stub.Write(request, timeout=self._answering_s)
            )

    def read(self, *entities: Any) -> list[Any]:
        """Return the switch's entities that match these ones, without writes still held back."""

        def read() -> list[Any]:
            """Return the entities of all answers to one ReadRequest."""
            request = p4runtime_pb2.ReadRequest(device_id=self._client.device_id)
            request.entities.extend(entities)
            return [
                e
                for answer in self._client.stub.Read(request, timeout=self._answering_s)
                for e in answer.entities
            ]

        return self.attempt(read) or []

    def digest_lists(self) -> Iterator[Any]:
        """Yield and acknowledge the digest lists that arrived since the last call."""
        incoming: queue.Queue[Any] = self._client.stream_in_q["digest"]
        while not self.lost:
            try:
                message = incoming.get_nowait()
            except queue.Empty:
                return
            if message is None:
                self.give_up(_CUT)
                return
            yield message.digest
            acknowledgement = p4runtime_pb2.StreamMessageRequest()
            acknowledgement.digest_ack.digest_id = message.digest.digest_id
            acknowledgement.digest_ack.list_id = message.digest.list_id
            self._client.stream_out_q.put(acknowledgement)

    def attempt(self, call: Callable[[], T]) -> T | None:
        """Run a call and return its result; None if the switch is, or thereby becomes, `lost`.

        A switch is lost when it does not answer or when another controller has become its primary.

        Raises:
            RemoteError: The switch refused it.
        """
        if self.lost:
            return None
        try:
            return call()
        except (P4RuntimeException, grpc.RpcError) as e:
            error: Any = getattr(e, "grpc_error", e)
            if error.code() in _GONE:
                self.give_up(_GONE[error.code()].format(self._answering_s))
                return None
            if error.code() == grpc.StatusCode.PERMISSION_DENIED:
                self._primary = False
                self.give_up(TAKEN)
                return None
            raise RemoteError(f"{self.name}: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """Return why a call was refused; for a refused batch, the reason of its first failed update.

    If the batch was too long for a list of errors, the reason is the message of the call itself.
    """
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for index, packed in enumerate(status_pb2.Status.FromString(value).details):
                one = p4runtime_pb2.Error()
                if packed.Unpack(one) and one.canonical_code:
                    return f"update {index}: {one.message or one.canonical_code}"
    return error.details() or error.code().name


class _Client(P4RuntimeClient):
    """A client that waits ``connecting_s`` seconds for the switch's first message."""

    def __init__(self, address: str, device_id: int, election_id: int, connecting_s: int) -> None:
        self._connecting_s = connecting_s
        super().__init__(device_id, address, (0, election_id))

    def get_stream_packet(self, type_: str, timeout: int = 1) -> Any:
        """Return the next message of a kind; None if the stream ends or ``timeout`` seconds pass.

        A shorter timeout than ``connecting_s`` is raised to it.
        """
        return super().get_stream_packet(type_, max(timeout, self._connecting_s))


def _connect(
    name: str, address: str, device_id: int, election_id: int, connecting_s: int
) -> P4RuntimeClient:
    """Return a client whose threads are daemons and whose failure raises RemoteError."""
    made: list[P4RuntimeClient] = []
    logging.getLogger().addFilter(_quiet)

    def connect() -> None:
        """Append a connected client to ``made``, or nothing if the switch refuses or is silent."""
        try:
            made.append(_Client(address, device_id, election_id, connecting_s))
        except (SystemExit, P4RuntimeException, grpc.RpcError):
            return  # reported below

    thread = threading.Thread(target=connect, daemon=True)  # daemons' children are daemons
    thread.start()
    thread.join(timeout=connecting_s + _ENDING_S)
    if not made:
        raise RemoteError(f"{name}: no P4Runtime server answers at {address}")
    return made[0]


def _end(client: P4RuntimeClient) -> None:
    client.stream.cancel()
    client.tear_down()


def _quiet(record: logging.LogRecord) -> bool:
    """Filter out p4runtime-shell's log records of closed channels; `Connection.lost` has these."""
    return record.module != "p4runtime"
