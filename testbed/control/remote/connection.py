"""A P4Runtime session with one switch: what is written, read, and comes by itself.

A switch that is gone answers nothing: `Connection.lost` says why, writes to it vanish, and what is
read from it is empty. So a run goes on without it, until `Connection.reconnect`.
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

# Their classes are made at run time: a type checker sees nothing of them.
p4runtime_pb2: Any = _p4runtime_pb2
status_pb2: Any = _status_pb2

T = TypeVar("T")

_MAX_UPDATES = 500  # a write request stays well below gRPC's 4 MB
_PATIENCE_S = 30
_ENDING_S = 5
_CUT = "its P4Runtime channel was cut"
TAKEN = "another controller took it"
ELECTION_ID = 1 << 63
"""Of this testbed's controller. Below it is room for clients that only read, above it for one that
takes the switch: p4runtime-sh's own default is 2^64."""

_GONE = {
    grpc.StatusCode.UNAVAILABLE: _CUT,
    grpc.StatusCode.CANCELLED: _CUT,
    grpc.StatusCode.DEADLINE_EXCEEDED: f"it did not answer in {_PATIENCE_S} s",
}


class RemoteError(UserError):
    """A switch refused something, or cannot be reached. One line."""


class Connection:
    """A session as the switch's primary client. Not thread safe.

    Args:
        name: Of the switch, for messages.
        address: Of its P4Runtime server, as gRPC takes it: ``host:port`` or ``unix:PATH``.
        device_id: As the process was started with.
        election_id: The highest of a switch's clients may write.

    Raises:
        RemoteError: No P4Runtime server answers as primary.
    """

    def __init__(self, name: str, address: str, device_id: int, election_id: int) -> None:
        self.name = name
        self.lost = ""
        self._server = address, device_id, election_id
        self._client = _connect(name, *self._server)
        self._held: list[Any] | None = None
        self._primary = True

    def is_primary(self) -> bool:
        """Return False while another controller has the switch, which is `lost` then.

        The switch tells all its controllers who its primary is whenever that changes.
        """
        incoming: queue.Queue[Any] = self._client.stream_in_q["arbitration"]
        with suppress(queue.Empty):
            while (message := incoming.get_nowait()) is not None:
                self._primary = message.arbitration.status.code == code_pb2.OK
                if not self._primary:
                    self.give_up(TAKEN)
        return self._primary

    def resume(self) -> None:
        """Use a switch again that another controller had; what was held back vanishes."""
        self._held, self.lost = None, ""

    def reconnect(self) -> None:
        """Begin a session anew with a switch that has restarted; what was held back vanishes.

        Raises:
            RemoteError: No P4Runtime server answers as primary.
        """
        threading.Thread(target=_end, args=(self._client,), daemon=True).start()
        self._client = _connect(self.name, *self._server)
        self._primary = True
        self.resume()

    def cut(self) -> None:
        """Cut the channel."""
        self._client.stream.cancel()

    def close(self) -> None:
        """End the session, or leave that to the end of the process: a signal's exception may have
        left one of gRPC's locks taken, and what waits for it would wait for ever."""
        ending = threading.Thread(target=_end, args=(self._client,), daemon=True)
        ending.start()
        ending.join(_ENDING_S)

    def give_up(self, reason: str) -> None:
        """From now on this switch answers nothing."""
        self.lost = self.lost or reason

    def has_program(self) -> bool:
        """Return whether the switch has a program."""
        try:
            return bool(self.attempt(lambda: self._client.get_p4info().tables))
        except RemoteError:
            return False

    def push_program(self, p4info: Any, program: Path) -> None:
        """Load a program."""
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self._client.device_id,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.election_id.high, request.election_id.low = self._client.election_id
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = program.read_bytes()
        self.attempt(lambda: self._client.stub.SetForwardingPipelineConfig(request))

    def hold(self) -> None:
        """Hold writes back until `send`."""
        self._held = self._held or []

    @property
    def waiting(self) -> bool:
        """Return True if writes are held back."""
        return bool(self._held)

    def send(self) -> None:
        """Send what was held back, and hold nothing back any more."""
        held, self._held = self._held or [], None
        self._send(held)

    def write(self, kind: str, what: str, message: Any) -> None:
        """``INSERT``, ``MODIFY`` or ``DELETE`` an entity, now or with `send`."""
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
                lambda request=request: self._client.stub.Write(request, timeout=_PATIENCE_S)
            )

    def read(self, *entities: Any) -> list[Any]:
        """What a switch has of these entities; writes that are held back are not in it."""

        def read() -> list[Any]:
            request = p4runtime_pb2.ReadRequest(device_id=self._client.device_id)
            request.entities.extend(entities)
            return [
                e
                for answer in self._client.stub.Read(request, timeout=_PATIENCE_S)
                for e in answer.entities
            ]

        return self.attempt(read) or []

    def digest_lists(self) -> Iterator[Any]:
        """The digest lists that have come since the last call; each is acknowledged."""
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
        """Run a call; what the switch refuses is an error, a switch that is gone or that another
        controller has is `lost`.

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
                self.give_up(_GONE[error.code()])
                return None
            if error.code() == grpc.StatusCode.PERMISSION_DENIED:
                self._primary = False
                self.give_up(TAKEN)
                return None
            raise RemoteError(f"{self.name}: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """Return why a call was refused; of a refused batch the first update's reason.

    A batch too long for its list of errors has them in the message of the call.
    """
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for index, packed in enumerate(status_pb2.Status.FromString(value).details):
                one = p4runtime_pb2.Error()
                if packed.Unpack(one) and one.canonical_code:
                    return f"update {index}: {one.message or one.canonical_code}"
    return error.details() or error.code().name


def _connect(name: str, address: str, device_id: int, election_id: int) -> P4RuntimeClient:
    """A client whose threads do not keep the process alive, and whose failure is an exception."""
    made: list[P4RuntimeClient] = []
    logging.getLogger().addFilter(_quiet)

    def connect() -> None:
        try:
            made.append(P4RuntimeClient(device_id, address, (0, election_id)))
        except (SystemExit, P4RuntimeException, grpc.RpcError):
            return  # it is told below

    thread = threading.Thread(target=connect, daemon=True)  # daemons' children are daemons
    thread.start()
    thread.join(timeout=10)
    if not made:
        raise RemoteError(f"{name}: no P4Runtime server answers at {address}")
    return made[0]


def _end(client: P4RuntimeClient) -> None:
    client.stream.cancel()
    client.tear_down()


def _quiet(record: logging.LogRecord) -> bool:
    """p4runtime-shell reports a channel's end as critical; `Connection.lost` tells it here."""
    return record.module != "p4runtime"
