# SPDX-License-Identifier: Apache-2.0
"""P4Runtime's action profile members and groups, clone sessions and multicast groups.

The controller chooses ids, but the switch (like BMv2) numbers members itself, and a group selects
by rising number. A member of weight w in a group is there w times, as copies, of which as many
exist as the largest weight requires.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from canary_softswitch.device.config import ActionConfig, PipelineConfig, ProfileConfig
from canary_softswitch.device.messages import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    P4Error,
    decode,
    encode,
    p4runtime_pb2,
)
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import Ports
from canary_softswitch.runtime.program import MAX_OUT
from canary_softswitch.runtime.switch import Switch

SESSIONS = 1 << 15  # the groups from here on belong to the clone sessions


def read_action(config: ActionConfig, action: Any) -> tuple[int, ...]:
    """Return an Action's parameters in P4Info's order; raise ``P4Error`` for wrong ones."""
    values: dict[int, bytes] = {p.param_id: p.value for p in action.params}
    if len(values) != len(config.params) or len(action.params) != len(config.params):
        raise P4Error(
            INVALID_ARGUMENT,
            f"action {config.name!r} takes {len(config.params)} "
            f"parameters, not {len(action.params)}",
        )
    try:
        return tuple(
            decode(values[i], width, f"action {config.name!r} parameter {name!r}")
            for i, name, width in config.params
        )
    except KeyError as e:
        raise P4Error(
            INVALID_ARGUMENT, f"action {config.name!r} has no value for parameter {e}"
        ) from None


def write_action(config: ActionConfig, values: tuple[int, ...], action: Any) -> None:
    """Fill in an Action message: the id, and the parameters from values in P4Info's order."""
    action.action_id = config.id
    for (i, _, _), v in zip(config.params, values, strict=True):
        action.params.add(param_id=i, value=encode(v))


def program_order(config: ActionConfig, values: tuple[int, ...]) -> list[int]:
    """Return parameter values in the program's order, from values in P4Info's order."""
    return [values[i] for i in config.order]


@dataclass
class Member:
    """A member: its action and parameters, and the switch's numbers of its copies."""

    action: ActionConfig
    values: tuple[int, ...]
    handles: list[int] = field(default_factory=list)


@dataclass
class Group:
    """A group: the controller's message, the switch's number of it, and weights by member id."""

    message: Any
    handle: int
    weights: dict[int, int]


class ProfileState:
    """The members and groups of one action profile of a running switch."""

    def __init__(
        self, config: ProfileConfig, pipeline: PipelineConfig, switch: Switch, ports: Ports
    ) -> None:
        self.config = config
        self.pipeline = pipeline
        self.profile = switch.action_profile(config.name)
        self.ports = ports
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}
        self.used_members: dict[int, int] = {}  # by table entries
        self.used_groups: dict[int, int] = {}

    # ---- members ----

    def action(self, message: Any) -> tuple[ActionConfig, tuple[int, ...]]:
        """Return the action of a message and the numbers that are its parameters.

        Raises ``P4Error`` if a table of the profile does not have the action.
        """
        config = self.pipeline.actions.get(message.action_id)
        tables = [self.pipeline.tables[t] for t in self.config.tables if t in self.pipeline.tables]
        if config is None or any(config.id not in t.actions for t in tables):
            raise P4Error(
                INVALID_ARGUMENT,
                f"action profile {self.config.name!r} has no action {message.action_id}",
            )
        return config, read_action(config, message)

    def write_member(self, kind: str, m: Any) -> None:
        """INSERT, MODIFY or DELETE a member, as ``kind`` says; ``P4Error`` if it is refused."""
        known = self.members.get(m.member_id)
        if kind == "INSERT":
            if not m.member_id:
                raise P4Error(INVALID_ARGUMENT, "a member id must not be 0")
            if known:
                raise P4Error(
                    ALREADY_EXISTS, f"member {m.member_id} of {self.config.name!r} exists"
                )
            self.members[m.member_id] = self._new(*self.action(m.action))
            return
        if known is None:
            raise P4Error(NOT_FOUND, f"{self.config.name!r} has no member {m.member_id}")
        if kind == "MODIFY":
            known.action, known.values = self.action(m.action)
            values = program_order(known.action, known.values)
            with self.ports.lock():
                for h in known.handles:
                    self.profile.modify_member(h, known.action.name, values)
            return
        if self.used_members.get(m.member_id) or any(
            m.member_id in g.weights for g in self.groups.values()
        ):
            raise P4Error(
                FAILED_PRECONDITION, f"member {m.member_id} of {self.config.name!r} is still used"
            )
        self._drop(self.members.pop(m.member_id))

    def _room(self, n: int) -> None:
        if self.config.size and len(self.profile.members) + n > self.config.size:
            raise P4Error(
                RESOURCE_EXHAUSTED,
                f"action profile {self.config.name!r} is full ({self.config.size} members)",
            )

    def _new(self, action: ActionConfig, values: tuple[int, ...]) -> Member:
        member = Member(action, values)
        self._copies(member, 1)
        return member

    def _copies(self, member: Member, n: int) -> None:
        if n > len(member.handles):
            self._room(n - len(member.handles))
        values = program_order(member.action, member.values)
        with self.ports.lock():
            while len(member.handles) < n:
                member.handles.append(self.profile.add_member(member.action.name, values))

    def _drop(self, member: Member, keep: int = 0) -> None:
        with self.ports.lock():
            while len(member.handles) > keep:
                self.profile.delete_member(member.handles.pop())

    # ---- groups ----

    def _weights(self, message: Any) -> dict[int, int]:
        weights: dict[int, int] = {}
        for m in message.members:
            if m.weight < 1:
                raise P4Error(
                    INVALID_ARGUMENT, f"the weight of member {m.member_id} is not positive"
                )
            if m.member_id in weights:
                raise P4Error(
                    INVALID_ARGUMENT,
                    f"member {m.member_id} is twice in group {message.group_id}: use its weight",
                )
            if m.member_id not in self.members:
                raise P4Error(NOT_FOUND, f"{self.config.name!r} has no member {m.member_id}")
            weights[m.member_id] = m.weight
        self._group_size(sum(weights.values()), message.max_size)
        return weights

    def _group_size(self, n: int, max_size: int = 0) -> None:
        limit = max_size or self.config.max_group_size
        if limit and n > limit:
            raise P4Error(
                RESOURCE_EXHAUSTED,
                f"the weights of a group of {self.config.name!r} add up to {n}, at most {limit}",
            )

    def _handles(self, weights: dict[int, int]) -> list[int]:
        for m in sorted(weights):
            self._copies(self.members[m], weights[m])
        return [h for m, w in weights.items() for h in self.members[m].handles[:w]]

    def _trim(self) -> None:
        """Remove copies of members that no group needs any more."""
        for i, m in self.members.items():
            self._drop(m, max([1, *(g.weights.get(i, 0) for g in self.groups.values())]))

    def write_group(self, kind: str, g: Any) -> None:
        """INSERT, MODIFY or DELETE a group, as ``kind`` says; ``P4Error`` if it is refused."""
        if not self.config.selector:
            raise P4Error(INVALID_ARGUMENT, f"{self.config.name!r} has no selector: no groups")
        known = self.groups.get(g.group_id)
        if kind == "INSERT":
            if not g.group_id:
                raise P4Error(INVALID_ARGUMENT, "a group id must not be 0")
            if known:
                raise P4Error(ALREADY_EXISTS, f"group {g.group_id} of {self.config.name!r} exists")
            weights = self._weights(g)
            handles = self._handles(weights)
            with self.ports.lock():
                handle = self.profile.add_group(handles)
            self.groups[g.group_id] = Group(self._copy(g), handle, weights)
            return
        if known is None:
            raise P4Error(NOT_FOUND, f"{self.config.name!r} has no group {g.group_id}")
        if kind == "MODIFY":
            if g.max_size and g.max_size != known.message.max_size:
                raise P4Error(INVALID_ARGUMENT, "max_size of a group cannot be changed")
            weights = self._weights(g)
            handles = self._handles(weights)
            with self.ports.lock():
                self.profile.modify_group(known.handle, handles)
            max_size = known.message.max_size
            known.message, known.weights = self._copy(g), weights
            known.message.max_size = max_size
        else:
            if self.used_groups.get(g.group_id):
                raise P4Error(
                    FAILED_PRECONDITION, f"group {g.group_id} of {self.config.name!r} is still used"
                )
            with self.ports.lock():
                self.profile.delete_group(known.handle)
            del self.groups[g.group_id]
        self._trim()

    @staticmethod
    def _copy(g: Any) -> Any:
        out = p4runtime_pb2.ActionProfileGroup()
        out.CopyFrom(g)
        return out

    # ---- one-shot action sets ----

    def one_shot(self, actions: Any) -> tuple[int, list[Member]]:
        """Create the group of a one-shot action set; return its number and its members."""
        if not self.config.selector:
            raise P4Error(INVALID_ARGUMENT, f"{self.config.name!r} has no selector: no action sets")
        if not len(actions):
            raise P4Error(INVALID_ARGUMENT, "the action set is empty")
        wanted = []
        for a in actions:
            if a.weight < 1:
                raise P4Error(INVALID_ARGUMENT, "the weight of an action is not positive")
            if a.HasField("watch") or a.watch_port:
                raise P4Error(UNIMPLEMENTED, "watch ports are not supported")
            wanted.append((*self.action(a.action), a.weight))
        self._group_size(sum(w for _, _, w in wanted))
        self._room(sum(w for _, _, w in wanted))
        members = []
        for config, values, weight in wanted:
            member = Member(config, values)
            self._copies(member, weight)
            members.append(member)
        with self.ports.lock():
            group = self.profile.add_group([h for m in members for h in m.handles])
        return group, members

    def drop_one_shot(self, group: int, members: list[Member]) -> None:
        """Remove the group with this number and the members that ``one_shot`` created."""
        with self.ports.lock():
            self.profile.delete_group(group)
        for m in members:
            self._drop(m)

    # ---- reading ----

    def read_members(self, id_: int, out: list[Any]) -> None:
        """Add one member, or all for id 0, to a list of entities."""
        for i in [id_] if id_ else sorted(self.members):
            if i in self.members:
                e = p4runtime_pb2.Entity()
                m = e.action_profile_member
                m.action_profile_id, m.member_id = self.config.id, i
                write_action(self.members[i].action, self.members[i].values, m.action)
                out.append(e)

    def read_groups(self, id_: int, out: list[Any]) -> None:
        """Add one group, or all for id 0, to a list of entities."""
        for i in [id_] if id_ else sorted(self.groups):
            if i in self.groups:
                out.append(p4runtime_pb2.Entity(action_profile_group=self.groups[i].message))


class Replication:
    """The clone sessions and multicast groups of a running switch."""

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
        """Append the entries that a request selects to a list of entities; id 0 means all."""
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
