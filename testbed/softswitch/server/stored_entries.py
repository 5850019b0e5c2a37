"""What is kept of a table's entries for P4Runtime, beside what the switch has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.softswitch.server.profiles import Member

Key = tuple[tuple[Any, ...], int]


@dataclass
class Reference:
    """What an entry runs: an action, a member, a group or a one-shot action set."""

    kind: str  # action, member, group, set
    id: int
    values: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    message: Any = None


@dataclass
class Stored:
    """An entry, of the controller as a rule; ``match`` is in the program's order."""

    handle: int
    match: tuple[Any, ...]
    priority: int
    reference: Reference
    metadata: bytes = b""
    controller_metadata: int = 0
    timeout_ns: int = 0  # 0: none
    since_us: int = 0  # when it was written
    told: bool = False  # of its being idle
