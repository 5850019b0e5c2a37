# SPDX-License-Identifier: Apache-2.0
"""BMv2's services "simple_switch" (mirroring, queues, time) and "simple_pre_lag" (multicast)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from canary_softswitch.device.device import Device
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.thrift.values import (
    I32,
    I64,
    NOTHING,
    STRING,
    Arguments,
    BmError,
    Call,
    MirrorErrorCode,
    MulticastErrorCode,
    Result,
    struct,
    text,
)

MOST_MIRRORS = 1 << 15


class SimpleSwitch:
    """BMv2's service ``simple_switch``: mirror sessions, limits of queues and the clock."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._start = time.monotonic()
        self._pipeline: Pipeline | None = None
        self._mirrors: dict[int, tuple[int | None, int]] = {}
        self.calls: dict[str, Call] = {
            "mirroring_session_add": lambda a: self._add(a.get(1, 0), a.get(2, {})),
            "mirroring_session_delete": lambda a: self._delete(a.get(1, 0)),
            "mirroring_session_get": lambda a: self._get(a.get(1, 0)),
            "mirroring_mapping_add": lambda a: self._status(
                lambda: self._add(a.get(1, 0), {1: a.get(2, 0)})
            ),
            "mirroring_mapping_delete": lambda a: self._status(lambda: self._delete(a.get(1, 0))),
            "mirroring_mapping_get_egress_port": self._mapping,
            "set_egress_priority_queue_depth": lambda a: self._limit(
                a.get(1), a.get(2), depth=a.get(3, 0)
            ),
            "set_egress_queue_depth": lambda a: self._limit(a.get(1), depth=a.get(2, 0)),
            "set_all_egress_queue_depths": lambda a: self._limit(depth=a.get(1, 0)),
            "set_egress_priority_queue_rate": lambda a: self._limit(
                a.get(1), a.get(2), rate=a.get(3, 0)
            ),
            "set_egress_queue_rate": lambda a: self._limit(a.get(1), rate=a.get(2, 0)),
            "set_all_egress_queue_rates": lambda a: self._limit(rate=a.get(1, 0)),
            "get_time_elapsed_us": lambda a: (
                I64,
                round((time.monotonic() - self._start) * 1e6),
            ),
            "get_time_since_epoch_us": lambda a: (I64, time.time_ns() // 1000),
        }

    @staticmethod
    def _status(call) -> Result:
        """Run a call and return 0 for success or 1 for failure, as BMv2's older calls do."""
        try:
            call()
        except BmError:
            return I32, 1
        return I32, 0

    def _running(self) -> Pipeline:
        """Return the pipeline in service, which has our sessions."""
        pipeline = self.device.pipeline
        if pipeline is None:
            raise BmError(MirrorErrorCode.SESSION_NOT_FOUND)
        if pipeline is not self._pipeline:
            self._pipeline, self._mirrors = pipeline, {}
        return pipeline

    def sessions(self) -> dict[int, tuple[int | None, int]]:
        """Return port and multicast group of the mirror sessions that Thrift's clients made."""
        self._running()
        return dict(self._mirrors)

    def restore(self, sessions: dict[int, tuple[int | None, int]]) -> None:
        """Create the mirror sessions again in a new pipeline: by number, their port and group."""
        for session, (port, group) in sessions.items():
            self._add(session, {2: group} if port is None else {1: port, 2: group})

    def _add(self, session: int, config: Arguments) -> Result:
        with self.device.lock:
            pipeline = self._running()
            port, group = config.get(1), config.get(2, 0)
            if not 0 <= session < MOST_MIRRORS:
                raise BmError(MirrorErrorCode.SESSION_NOT_FOUND)
            try:
                with self.device.ports.lock():
                    pipeline.switch.set_mirror(session, port, 0, group)
            except SoftSwitchError:
                raise BmError(MirrorErrorCode.SESSION_NOT_FOUND) from None
            self._mirrors[session] = port, group
        return NOTHING

    def _delete(self, session: int) -> Result:
        with self.device.lock:
            pipeline = self._running()
            if self._mirrors.pop(session, None) is None:
                raise BmError(MirrorErrorCode.SESSION_NOT_FOUND)
            with self.device.ports.lock():
                pipeline.switch.delete_mirror(session)
        return NOTHING

    def _get(self, session: int) -> Result:
        with self.device.lock:
            self._running()
            if session not in self._mirrors:
                raise BmError(MirrorErrorCode.SESSION_NOT_FOUND)
            port, group = self._mirrors[session]
        return struct((1, I32, port), (2, I32, group or None))

    def _mapping(self, a: Arguments) -> Result:
        with self.device.lock:
            self._running()
            port, _ = self._mirrors.get(a.get(1, 0), (None, 0))
        return I32, -1 if port is None else port

    def _limit(
        self,
        port: int | None = None,
        priority: int | None = None,
        depth: int | None = None,
        rate: int | None = None,
    ) -> Result:
        if (depth or 0) < 0 or (rate or 0) < 0:
            return I32, 1
        try:
            self.device.ports.limit_queues(port, priority, depth, rate)
        except SoftSwitchError:
            return I32, 1
        return I32, 0


@dataclass
class _Node:
    rid: int
    ports: list[int]
    lags: list[int]
    group: int | None = None


@dataclass
class _Books:
    """The groups, nodes and link aggregation groups that clients created in one pipeline."""

    groups: dict[int, list[int]] = field(default_factory=dict)  # nodes, by group
    nodes: dict[int, _Node] = field(default_factory=dict)
    lags: dict[int, list[int]] = field(default_factory=dict)
    next: int = 0


def _bits(text_: str) -> list[int]:
    """Return the positions of the ones in a text of binary digits, counted from the right."""
    if set(text_) - set("01"):
        raise BmError(MulticastErrorCode.ERROR)
    return [i for i, c in enumerate(reversed(text_)) if c == "1"]


def _ports(text_: str) -> list[int]:
    """Return the ports of a port map, a text of binary digits, at most port 511."""
    ports = _bits(text_)
    if max(ports, default=0) > 511:
        raise BmError(MulticastErrorCode.ERROR)
    return ports


class Multicast:
    """Multicast groups of nodes: a replication id, ports and link aggregation groups each."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pipeline: Pipeline | None = None
        self._books = _Books()
        self.calls: dict[str, Call] = {
            name: self._locked(call)
            for name, call in {
                "bm_mc_mgrp_create": self._create,
                "bm_mc_mgrp_destroy": self._destroy,
                "bm_mc_node_create": self._node_create,
                "bm_mc_node_associate": self._associate,
                "bm_mc_node_dissociate": self._dissociate,
                "bm_mc_node_destroy": self._node_destroy,
                "bm_mc_node_update": self._node_update,
                "bm_mc_set_lag_membership": self._lag,
                "bm_mc_get_entries": self._entries,
            }.items()
        }

    def _locked(self, call: Call) -> Call:
        def locked(a: Arguments) -> Result:
            """Return the result of the call under the lock; raise ``BmError`` without a program.

            The multicast groups and nodes are forgotten when the program was replaced.
            """
            with self.device.lock:
                if self.device.pipeline is None:
                    raise BmError(MulticastErrorCode.ERROR)
                if self.device.pipeline is not self._pipeline:
                    self._pipeline, self._books = self.device.pipeline, _Books()
                return call(a)

        return locked

    def _install(self, group: int) -> None:
        """Set the copies of a multicast group in the switch."""
        copies: list[tuple[int, int]] = []
        for h in self._books.groups.get(group, []):
            node = self._books.nodes[h]
            ports = list(node.ports)
            for lag in node.lags:
                ports += self._books.lags.get(lag, [])[:1]  # one member carries a packet
            copies += [(p, node.rid) for p in ports]
        assert self._pipeline is not None
        try:
            with self.device.ports.lock():
                self._pipeline.switch.set_multicast_group(group, copies)
        except SoftSwitchError:
            raise BmError(MulticastErrorCode.ERROR) from None

    def _change(self, groups: Iterable[int], undo: Callable[[], object]) -> None:
        """Set changed groups in the switch; if it refuses one, undo the change in all of them."""
        try:
            for group in groups:
                self._install(group)
        except BmError:
            undo()
            for group in groups:
                self._install(group)
            raise

    def _create(self, a: Arguments) -> Result:
        group = a.get(2, 0)
        if not isinstance(group, int) or not 0 < group < 1 << 16:
            raise BmError(MulticastErrorCode.INVALID_MGID)
        self._books.groups.setdefault(group, [])
        return I32, group

    def _group(self, a: Arguments) -> int:
        if a.get(2, 0) not in self._books.groups:
            raise BmError(MulticastErrorCode.INVALID_MGRP_HANDLE)
        return a[2]

    def _destroy(self, a: Arguments) -> Result:
        group = a.get(2, 0)
        for h in self._books.groups.pop(group, []):
            self._books.nodes[h].group = None
            self._install(group)
        return NOTHING

    def _node_create(self, a: Arguments) -> Result:
        rid, ports = a.get(2, 0), _ports(text(a, 3))
        if not isinstance(rid, int) or not 0 <= rid < 1 << 16:
            raise BmError(MulticastErrorCode.ERROR)
        node = _Node(rid, ports, _bits(text(a, 4)))
        handle = self._books.next
        self._books.next += 1
        self._books.nodes[handle] = node
        return I32, handle

    def _node(self, handle: int) -> _Node:
        if handle not in self._books.nodes:
            raise BmError(MulticastErrorCode.INVALID_L1_HANDLE)
        return self._books.nodes[handle]

    def _associate(self, a: Arguments) -> Result:
        group, node = self._group(a), self._node(a.get(3, 0))
        if node.group is not None:
            raise BmError(MulticastErrorCode.ERROR)
        members = self._books.groups[group]
        members.append(a.get(3, 0))
        self._change([group], members.pop)
        node.group = group
        return NOTHING

    def _dissociate(self, a: Arguments) -> Result:
        group, node = self._group(a), self._node(a.get(3, 0))
        if node.group != group:
            raise BmError(MulticastErrorCode.ERROR)
        node.group = None
        self._books.groups[group].remove(a.get(3, 0))
        self._install(group)
        return NOTHING

    def _node_destroy(self, a: Arguments) -> Result:
        handle = a.get(2, 0)
        node = self._node(handle)
        if node.group is not None:
            self._books.groups[node.group].remove(handle)
            self._install(node.group)
        del self._books.nodes[handle]
        return NOTHING

    def _node_update(self, a: Arguments) -> Result:
        node = self._node(a.get(2, 0))
        before = node.ports, node.lags

        def undo() -> None:
            """Give the node its earlier ports and LAGs back."""
            node.ports, node.lags = before

        node.ports, node.lags = _ports(text(a, 3)), _bits(text(a, 4))
        self._change([] if node.group is None else [node.group], undo)
        return NOTHING

    def _lag(self, a: Arguments) -> Result:
        lags, lag = self._books.lags, int(a.get(2, 0))
        before = lags.get(lag, [])
        lags[lag] = _ports(text(a, 3))
        self._change(list(self._books.groups), lambda: lags.update({lag: before}))
        return NOTHING

    def _entries(self, a: Arguments) -> Result:
        """Return the groups, as BMv2 writes them in JSON."""
        b = self._books
        out = {
            "mgrps": [{"id": g, "l1_handles": h} for g, h in sorted(b.groups.items())],
            "l1_handles": [
                {"handle": h, "rid": n.rid, "l2_handle": h} for h, n in sorted(b.nodes.items())
            ],
            "l2_handles": [
                {"handle": h, "ports": n.ports, "lags": n.lags} for h, n in sorted(b.nodes.items())
            ],
            "lags": [{"id": i, "ports": p} for i, p in sorted(b.lags.items())],
        }
        return STRING, json.dumps(out)
