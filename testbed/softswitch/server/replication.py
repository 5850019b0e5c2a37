"""Clone sessions and multicast groups as P4Runtime sees them."""

from __future__ import annotations

from typing import Any

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.runtime.program import MAX_OUT
from testbed.softswitch.runtime.switch import Switch
from testbed.softswitch.server.messages import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    P4Error,
    p4runtime_pb2,
)
from testbed.softswitch.server.ports import Ports

SESSIONS = 1 << 15  # the groups from here on belong to the clone sessions


class Replication:
    """The packet replication engine of a running switch."""

    def __init__(self, switch: Switch, ports: Ports) -> None:
        self.switch = switch
        self.ports = ports
        self.sessions: dict[int, Any] = {}
        self.groups: dict[int, Any] = {}
        self.most_groups: int | None = None  # --max-mc-groups

    @staticmethod
    def _copies(replicas: Any, what: str) -> list[tuple[int, int]]:
        out: list[tuple[int, int]] = []
        for r in replicas:
            port = int.from_bytes(r.port, "big") if r.port else r.egress_port
            if port > 511 or r.instance > 0xFFFF:
                raise P4Error(
                    INVALID_ARGUMENT,
                    f"{what}: port {port}, instance {r.instance} is out of range (511, 65535)",
                )
            if (port, r.instance) in out:
                raise P4Error(
                    INVALID_ARGUMENT, f"{what}: port {port}, instance {r.instance} is there twice"
                )
            out.append((port, r.instance))
        if len(out) > MAX_OUT:
            raise P4Error(RESOURCE_EXHAUSTED, f"{what}: {len(out)} replicas, at most {MAX_OUT}")
        return out

    @staticmethod
    def _check(kind: str, known: bool, what: str) -> None:
        if kind == "INSERT" and known:
            raise P4Error(ALREADY_EXISTS, f"{what} exists")
        if kind != "INSERT" and not known:
            raise P4Error(NOT_FOUND, f"there is no {what}")

    def write(self, kind: str, entry: Any) -> None:
        """INSERT, MODIFY or DELETE a clone session or a multicast group."""
        which = entry.WhichOneof("type")
        if which == "clone_session_entry":
            self._session(kind, entry.clone_session_entry)
        elif which == "multicast_group_entry":
            self._group(kind, entry.multicast_group_entry)
        else:
            raise P4Error(INVALID_ARGUMENT, "the packet replication entry is empty")

    def _session(self, kind: str, e: Any) -> None:
        what = f"clone session {e.session_id}"
        if not 0 < e.session_id < SESSIONS:
            raise P4Error(INVALID_ARGUMENT, f"{what} is not within 1..{SESSIONS - 1}")
        self._check(kind, e.session_id in self.sessions, what)
        group = SESSIONS | e.session_id
        if kind == "DELETE":
            with self.ports.lock():
                self.switch.delete_mirror(e.session_id)
                self.switch.set_multicast_group(group, ())
            del self.sessions[e.session_id]
            return
        if e.class_of_service:
            raise P4Error(UNIMPLEMENTED, f"{what}: classes of service are not supported")
        if not 0 <= e.packet_length_bytes < 1 << 31:
            raise P4Error(INVALID_ARGUMENT, f"{what}: the packet length is negative")
        copies = self._copies(e.replicas, what)
        with self.ports.lock():
            self.switch.set_multicast_group(group, copies)
            self.switch.set_mirror(e.session_id, None, e.packet_length_bytes, group)
        self.sessions[e.session_id] = copy = p4runtime_pb2.CloneSessionEntry()
        copy.CopyFrom(e)

    def _group(self, kind: str, e: Any) -> None:
        what = f"multicast group {e.multicast_group_id}"
        if not 0 < e.multicast_group_id < SESSIONS:
            raise P4Error(INVALID_ARGUMENT, f"{what} is not within 1..{SESSIONS - 1}")
        self._check(kind, e.multicast_group_id in self.groups, what)
        if kind == "INSERT" and len(self.groups) == self.most_groups:
            raise P4Error(RESOURCE_EXHAUSTED, f"{what}: at most {self.most_groups} groups")
        copies = [] if kind == "DELETE" else self._copies(e.replicas, what)
        try:
            with self.ports.lock():
                self.switch.set_multicast_group(e.multicast_group_id, copies)
        except SoftSwitchError as error:
            raise P4Error(INVALID_ARGUMENT, str(error)) from None
        if kind == "DELETE":
            del self.groups[e.multicast_group_id]
        else:
            self.groups[e.multicast_group_id] = copy = p4runtime_pb2.MulticastGroupEntry()
            copy.CopyFrom(e)

    def read(self, request: Any, out: list[Any]) -> None:
        """Add the entries a request means to a list of entities; id 0 means all."""
        which = request.WhichOneof("type")
        if which in (None, "clone_session_entry"):
            i = request.clone_session_entry.session_id
            for n in [i] if i else sorted(self.sessions):
                if n in self.sessions:
                    e = p4runtime_pb2.Entity()
                    e.packet_replication_engine_entry.clone_session_entry.CopyFrom(self.sessions[n])
                    out.append(e)
        if which in (None, "multicast_group_entry"):
            i = request.multicast_group_entry.multicast_group_id
            for n in [i] if i else sorted(self.groups):
                if n in self.groups:
                    e = p4runtime_pb2.Entity()
                    e.packet_replication_engine_entry.multicast_group_entry.CopyFrom(self.groups[n])
                    out.append(e)
