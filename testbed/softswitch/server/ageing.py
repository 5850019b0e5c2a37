"""Idle timeouts of table entries: the controller hears once of each that was not hit in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from testbed.softswitch.server.messages import p4runtime_pb2
from testbed.softswitch.server.table_entries import TableState

Send = Callable[[Any], bool]


class Ageing:
    """The entries with a timeout of a running switch."""

    def __init__(self, tables: Iterable[TableState]) -> None:
        self._tables = [t for t in tables if t.config.definition.aged]

    def poll(self, send: Send) -> float | None:
        """Tell of the entries that are idle; gives the seconds until the next may be, or None."""
        due = None
        message = p4runtime_pb2.IdleTimeoutNotification(timestamp=time.time_ns())
        for table in self._tables:
            for stored in table.entries.values():
                if not stored.timeout_ns:
                    continue
                idle = table.idle_ns(stored)
                left = stored.timeout_ns - idle
                if left > 0:
                    stored.told = False
                    due = left if due is None else min(due, left)
                elif not stored.told:
                    stored.told = True
                    table.fill(stored, message.table_entry.add())
                if left <= 0:  # it may be hit again and then be idle anew
                    due = stored.timeout_ns if due is None else min(due, stored.timeout_ns)
        if message.table_entry:
            send(message)
        return None if due is None else due / 1e9
