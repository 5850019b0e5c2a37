"""Messages on their way to a client's stream."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from testbed.softswitch.server import limits
from testbed.softswitch.server.values import RESOURCE_EXHAUSTED, P4Error

OVERHEAD = 100  # bytes that a message takes beside its own


class Outbox:
    """A queue of serialized messages of at most ``limits.OUTBOX_BYTES``.

    Any thread puts messages in; one coroutine of ``loop`` takes them out. ``error`` is what the
    queue ended with, and ``on_error`` is called in ``loop`` when it is set.
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

        Where it does not fit, a ``droppable`` message is dropped, and any other ends the queue. The
        queue also ends when a message is dropped and the client has taken nothing for long.
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
        """Take no more messages; with an error drop those that are there."""
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
