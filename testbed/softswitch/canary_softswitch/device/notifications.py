# SPDX-License-Identifier: Apache-2.0
"""Notifications of a switch to its controller: digests, and idle timeouts of entries.

The switch keeps a sample of a digest until it is acknowledged and discards equal ones meanwhile, as
P4Runtime prescribes. Samples of a digest that no controller configured are discarded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from canary_softswitch.device.config import DigestConfig
from canary_softswitch.device.messages import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    P4Error,
    encode,
    p4data_pb2,
    p4runtime_pb2,
)
from canary_softswitch.device.table_reads import TableReader
from canary_softswitch.ports.ports import Ports
from canary_softswitch.runtime.switch import Switch

UNLIMITED = 1024  # samples in a list when max_list_size is 0
LISTS = 16  # lists of a digest in one go: others want the switch as well
Send = Callable[[Any], bool]


@dataclass
class Outstanding:
    """A digest list that was sent: its range of sample numbers, and when (s)."""

    first: int
    end: int
    at: float


@dataclass
class DigestState:
    """One digest: how the controller configured it, and which samples were sent."""

    config: DigestConfig
    entry: Any = None
    timeout_ns: int = 0  # how long a sample waits for its list to be full
    size: int = UNLIMITED  # samples of a full list
    next: int = 0  # number of the first sample not sent
    waiting_since: float | None = None
    list_id: int = 0
    sent: dict[int, Outstanding] = field(default_factory=dict)


class Digests:
    """The digests of a running switch: their configurations, and the lists that were sent."""

    def __init__(self, configs: dict[int, DigestConfig], switch: Switch, ports: Ports) -> None:
        self.switch = switch
        self.ports = ports
        self.digests = {i: DigestState(c) for i, c in configs.items()}

    def _state(self, id_: int) -> DigestState:
        if id_ not in self.digests:
            raise P4Error(NOT_FOUND, f"no digest has the id {id_}")
        return self.digests[id_]

    def write(self, kind: str, entry: Any) -> None:
        """INSERT, MODIFY or DELETE the configuration of a digest; ``P4Error`` if it is refused."""
        d = self._state(entry.digest_id)
        if kind == "INSERT" and d.entry is not None:
            raise P4Error(ALREADY_EXISTS, f"digest {d.config.name!r} is configured")
        if kind != "INSERT" and d.entry is None:
            raise P4Error(NOT_FOUND, f"digest {d.config.name!r} is not configured")
        if kind == "DELETE":
            d.entry = None
            d.sent.clear()
            self._forget(d, 0, 1 << 63)
            return
        c = entry.config
        if c.max_timeout_ns < 0 or c.max_list_size < 0 or c.ack_timeout_ns < 0:
            raise P4Error(INVALID_ARGUMENT, f"digest {d.config.name!r}: a limit is negative")
        if kind == "INSERT":
            self._forget(d, 0, 1 << 63)
        d.entry = p4runtime_pb2.DigestEntry()
        d.entry.CopyFrom(entry)
        d.timeout_ns, d.size = c.max_timeout_ns, c.max_list_size or UNLIMITED

    def configure_as(self, other: Digests) -> None:
        """Copy the configurations of another switch's digests, which has the same program."""
        for id_, d in other.digests.items():
            mine = self.digests[id_]
            mine.entry, mine.timeout_ns, mine.size = d.entry, d.timeout_ns, d.size
            mine.list_id = d.list_id

    def named(self, name: str) -> DigestState | None:
        """Return the digest called ``name``, or None."""
        return next((d for d in self.digests.values() if d.config.name == name), None)

    def acknowledge(self, d: DigestState, list_id: int, samples: Sequence[int] | None) -> None:
        """Forget a list that was sent, or the samples in it that ``samples`` numbers from 0."""
        sent = d.sent.get(list_id)
        if sent is None:
            return
        if samples is None:
            del d.sent[list_id]
            self._forget(d, sent.first, sent.end)
        for i in samples or ():
            if 0 <= i < sent.end - sent.first:
                self._forget(d, sent.first + i, sent.first + i + 1)

    def read(self, id_: int, out: list[Any]) -> None:
        """Add one configuration, or all for id 0, to a list of entities."""
        for d in [self._state(id_)] if id_ else self.digests.values():
            if d.entry is not None:
                out.append(p4runtime_pb2.Entity(digest_entry=d.entry))

    def ack(self, message: Any) -> None:
        """Handle the acknowledgement of a list: equal samples are reported again from now on."""
        d = self._state(message.digest_id)
        sent = d.sent.pop(message.list_id, None)
        if sent is None:
            raise P4Error(
                NOT_FOUND,
                f"digest {d.config.name!r} has no list {message.list_id} "
                "that waits for its acknowledgement",
            )
        self._forget(d, sent.first, sent.end)

    def _forget(self, d: DigestState, first: int, end: int) -> None:
        with self.ports.lock():
            self.switch.digest_forget(d.config.name, first, end)

    def poll(self, send: Send) -> float | None:
        """Send the lists that are due; return the seconds until the next one is due, or None.

        ``send`` returns True if a controller took the list; otherwise its samples are dropped.
        """
        due = [self._poll(d, send) for d in self.digests.values()]
        return min((x for x in due if x is not None), default=None)

    def _poll(self, d: DigestState, send: Send) -> float | None:
        if d.entry is None:
            self._forget(d, 0, 1 << 63)
            return None
        now = time.monotonic()
        expire_s = d.entry.config.ack_timeout_ns / 1e9  # of lists sent before a MODIFY, too
        for i in [i for i, s in d.sent.items() if s.at + expire_s <= now]:
            s = d.sent.pop(i)
            self._forget(d, s.first, s.end)
        size = d.size
        wait = None
        for left in range(LISTS - 1, -1, -1):
            with self.ports.lock():
                samples = self.switch.digest_since(d.config.name, d.next, size)
            if not len(samples):
                d.waiting_since = None
                break
            if d.waiting_since is None:
                d.waiting_since = now
            wait = d.waiting_since + d.timeout_ns / 1e9 - now
            if len(samples) < size and wait > 0:
                break
            self._send(d, samples, send, now)
            d.waiting_since, wait = None, None if left else 0.0
        first = min((s.at for s in d.sent.values()), default=None)
        times = [wait, None if first is None else max(0.0, first + expire_s - now)]
        return min((t for t in times if t is not None), default=None)

    def _send(self, d: DigestState, samples: NDArray[Any], send: Send, now: float) -> None:
        first, end = int(samples["sequence"][0]), int(samples["sequence"][-1]) + 1
        d.list_id += 1
        message = p4runtime_pb2.DigestList(
            digest_id=d.config.id, list_id=d.list_id, timestamp=time.time_ns()
        )
        names = (samples.dtype.names or ())[:-2]
        for sample in samples:
            values = [sample[n] for n in names]
            message.data.append(
                _data(
                    d.config,
                    [
                        int(v) if v.dtype.names is None else int(v["lo"]) | int(v["hi"]) << 64
                        for v in values
                    ],
                )
            )
        d.next = end
        if send(message) and d.entry.config.ack_timeout_ns:
            d.sent[d.list_id] = Outstanding(first, end, now)
        else:
            self._forget(d, first, end)


def _data(config: DigestConfig, values: list[int]) -> Any:
    data = p4data_pb2.P4Data()
    if config.shape == "bitstring":
        data.bitstring = encode(values[0])
        return data
    members = getattr(data, config.shape).members
    for v in values:
        members.add(bitstring=encode(v))
    return data


class Ageing:
    """Sends idle timeout notifications for the entries of a running switch."""

    def __init__(self, readers: Iterable[TableReader]) -> None:
        self._readers = [r for r in readers if r.state.config.definition.aged]

    def poll(self, send: Send) -> float | None:
        """Report idle entries; return the seconds until the next one may be idle, or None."""
        due = None
        message = p4runtime_pb2.IdleTimeoutNotification(timestamp=time.time_ns())
        for reader in self._readers:
            for stored in reader.state.entries.values():
                if not stored.timeout_ns:
                    continue
                # An idle entry is reported again after each further timeout (P4Runtime, section
                # "Table Idle Timeout Notification").
                times, since = divmod(reader.state.idle_ns(stored), stored.timeout_ns)
                if times > stored.times_idle:
                    reader.fill(stored, message.table_entry.add())
                stored.times_idle = times
                left = stored.timeout_ns - since
                due = left if due is None else min(due, left)
        if message.table_entry:
            send(message)
        return None if due is None else due / 1e9
