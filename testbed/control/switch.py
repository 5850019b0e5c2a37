"""What the controller needs of a switch, whatever carries it: in process today."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

__all__ = ["ActionProfileControl", "SwitchControl", "TableControl"]


class TableControl(Protocol):
    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int: ...

    def delete(self, handle: int) -> None: ...

    def counter(self, handle: int) -> tuple[int, int]: ...

    def set_default(self, action: str, params: Sequence[int] = ()) -> None: ...

    def add_group_entry(
        self, match: Sequence[Any], group: int, priority: int | None = None
    ) -> int: ...


class ActionProfileControl(Protocol):
    def add_member(self, action: str, params: Sequence[int] = ()) -> int: ...

    def add_group(self, members: Sequence[int]) -> int: ...


class SwitchControl(Protocol):
    """A switch that runs the Canary program: its tables, registers and digests by P4 name."""

    def table(self, name: str) -> TableControl: ...

    def action_profile(self, name: str) -> ActionProfileControl: ...

    def register(self, name: str) -> npt.NDArray[Any]: ...

    def digests(self, ack: bool = True) -> dict[str, npt.NDArray[Any]]: ...
