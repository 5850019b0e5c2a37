# SPDX-License-Identifier: Apache-2.0
"""The controllers of a device: which one is primary, and the queue of messages to each.

The primary of a role is the controller that sent the highest election id that the device ever
received for it. When it goes there is none, until a controller arbitrates anew with an election id
at least as high. (In simple_switch_grpc the connected controller with the highest id takes over.)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from canary_softswitch import limits
from canary_softswitch.device.messages import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OK,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    P4Error,
    p4runtime_pb2,
    status_pb2,
)

OVERHEAD = 100  # bytes that a message takes beside its own


class Outbox:
    """A queue of serialized messages of at most ``limits.OUTBOX_BYTES``.

    Any thread may put messages in; one coroutine of ``loop`` takes them out. ``error`` is the error
    that ended the queue; ``on_error`` is called in ``loop`` when it is set.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_error: Callable[[], object]) -> None:
        self.error: P4Error | None = None
        self._loop = loop
        self._on_error = on_error
        self._lock = threading.Lock()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._taken = 0.0  # time since when nothing was taken
        self._ended = False
        self._changed = asyncio.Event()
        self._watched = False  # whether ``take`` waits for ``_changed``

    def put(self, message: Any, droppable: bool = False) -> bool:
        """Add a message; return False if it was dropped.

        If it does not fit, a ``droppable`` message is dropped, and any other ends the queue. The
        queue also ends if a message is dropped after the client has taken none for
        ``limits.OUTBOX_SECONDS``.
        """
        data = message.SerializeToString()
        with self._lock:
            if self._ended:
                return False
            now = time.monotonic()
            if not self._messages:
                self._taken = now
            elif self._bytes + len(data) + OVERHEAD > limits.OUTBOX_BYTES:
                if not droppable or now - self._taken > limits.OUTBOX_SECONDS:
                    self._end(P4Error(RESOURCE_EXHAUSTED, "the client does not read its stream"))
                return False
            self._messages.append(data)
            self._bytes += len(data) + OVERHEAD
            self._notify()
        return True

    def end(self, error: P4Error | None = None) -> None:
        """End the queue: it accepts no messages; with an error those in it are dropped."""
        with self._lock:
            if not self._ended:
                self._end(error)

    def _end(self, error: P4Error | None) -> None:
        self._ended, self.error = True, error
        if error is not None:
            self._messages.clear()
            self._loop.call_soon_threadsafe(self._on_error)
        self._notify()

    def _notify(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.call_soon_threadsafe(self._changed.set)

    async def take(self) -> bytes | None:
        """Remove and return the next message, or None when the queue ended and is empty."""
        while True:
            with self._lock:
                if self._messages:
                    data = self._messages.popleft()
                    self._bytes -= len(data) + OVERHEAD
                    self._taken = time.monotonic()
                    return data
                if self._ended:
                    return None
                self._watched = True
            await self._changed.wait()
            self._changed.clear()


def election_number(message: Any) -> int:
    """Return the election id of a Uint128 message as an integer."""
    return message.high << 64 | message.low


Role = str | int  # its name, or the id that older clients give instead; "" is the full role


def role_of(name: str, id_: int) -> Role:
    """Return the role of a message, given by name or, by older clients, by id."""
    return name or id_ or ""


@dataclass(eq=False)
class Controller:
    """A connected stream; ``out`` holds the messages to its client."""

    out: Outbox
    role: Role | None = None  # None: not arbitrated yet
    election: int = 0


class Arbitration:
    """The connected controllers of one device; thread safe."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._lock = threading.Lock()
        self._controllers: list[Controller] = []
        self._highest: dict[Role, int] = {}  # election ids, also of controllers that have gone

    def update(self, c: Controller, message: Any) -> None:
        """Handle a controller's arbitration message; raise ``P4Error`` to end its stream."""
        if message.device_id != self.device_id:
            raise P4Error(
                NOT_FOUND if c.role is None else FAILED_PRECONDITION,
                f"there is no device {message.device_id}: this is device {self.device_id}",
            )
        if message.role.HasField("config"):
            raise P4Error(UNIMPLEMENTED, "role configurations are not supported")
        role = role_of(message.role.name, message.role.id)
        election = election_number(message.election_id)
        with self._lock:
            if c.role is not None and role != c.role:
                raise P4Error(FAILED_PRECONDITION, "a stream cannot change its role")
            if election and any(
                o is not c and o.role == role and o.election == election for o in self._controllers
            ):
                raise P4Error(
                    INVALID_ARGUMENT, f"election id {election} belongs to another controller"
                )
            was_primary = self._primary(role) is c
            if c.role is None:
                self._controllers.append(c)
            c.role, c.election = role, election
            if election:
                self._highest[role] = max(election, self._highest.get(role, 0))
            if was_primary or self._primary(role) is c:
                self._notify(role)
            else:
                c.out.put(self._answer(c))

    def leave(self, c: Controller) -> None:
        """Forget a controller whose stream ended; if it was primary, there is none now."""
        with self._lock:
            if c not in self._controllers:
                return
            assert c.role is not None
            before = self._primary(c.role)
            self._controllers.remove(c)
            if before is c:
                self._notify(c.role)

    def _primary(self, role: Role) -> Controller | None:
        highest = self._highest.get(role)
        of_role = (o for o in self._controllers if o.role == role and o.election == highest)
        return next(of_role, None)

    def primary(self, role: Role = "") -> Controller | None:
        """Return the primary controller of a role, or None."""
        with self._lock:
            return self._primary(role)

    def _answer(self, c: Controller) -> Any:
        assert c.role is not None
        message = p4runtime_pb2.StreamMessageResponse()
        a = message.arbitration
        a.device_id = self.device_id
        if isinstance(c.role, int):
            a.role.id = c.role
        elif c.role:
            a.role.name = c.role
        primary, highest = self._primary(c.role), self._highest.get(c.role)
        if highest is not None:
            a.election_id.high = highest >> 64
            a.election_id.low = highest & (1 << 64) - 1
        if primary is c:
            a.status.CopyFrom(status_pb2.Status(code=OK, message="is primary"))
        elif primary is None:
            a.status.CopyFrom(
                status_pb2.Status(code=NOT_FOUND, message="there is no primary controller")
            )
        else:
            a.status.CopyFrom(status_pb2.Status(code=ALREADY_EXISTS, message="is backup"))
        return message

    def _notify(self, role: Role) -> None:
        for o in self._controllers:
            if o.role == role:
                o.out.put(self._answer(o))

    def allow(self, request: Any) -> None:
        """Raise ``P4Error`` unless a Write or SetForwardingPipelineConfig comes from the primary.

        Without a primary nothing is allowed, as P4Runtime prescribes, and a VERIFY neither: it runs
        the compiler. (simple_switch_grpc takes requests without election id while no controller is
        connected.)
        """
        if request.device_id != self.device_id:
            raise P4Error(
                NOT_FOUND,
                f"there is no device {request.device_id}: this is device {self.device_id}",
            )
        role = role_of(request.role, request.role_id)
        election = election_number(request.election_id)
        with self._lock:
            primary = self._primary(role)
        if primary is None or primary.election != election:
            raise P4Error(PERMISSION_DENIED, "not primary")
