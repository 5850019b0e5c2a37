"""What the controller needs of a switch, whatever carries it and whatever program it runs.

`testbed.control.local.LocalSwitch` is a soft switch in this process, and
`testbed.control.remote.switch.RemoteSwitch` one that is reached over the wire. For tests anything
with this face will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Control = TypeVar("Control", bound="SwitchControl")


class TableControl(Protocol):
    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int: ...

    def delete(self, handle: int) -> None: ...

    def counters(self, handles: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Packets and bytes that hit each of n entries: uint64[n, 2]."""
        ...

    def set_default(self, action: str, params: Sequence[int] = ()) -> None: ...

    def add_group_entry(
        self, match: Sequence[Any], group: int, priority: int | None = None
    ) -> int: ...


class ActionProfileControl(Protocol):
    def add_member(self, action: str, params: Sequence[int] = ()) -> int: ...

    def add_group(self, members: Sequence[int]) -> int: ...

    def modify_group(self, group: int, members: Sequence[int]) -> None: ...


class Tables(Protocol):
    """The tables of a switch, by their full P4 names: all that rules take."""

    def table(self, name: str) -> TableControl: ...

    def action_profile(self, name: str) -> ActionProfileControl: ...


class SwitchControl(Tables, Protocol):
    """A switch: its tables, registers, counters and digests by their full P4 names.

    Digests have the program's fields in its order, then ``now_us`` and ``sequence``; the names of
    the fields differ.
    """

    @property
    def remote(self) -> bool:
        """Whether an answer takes a while, so that several switches are better asked at once."""
        ...

    @property
    def lost(self) -> str:
        """Why it answers nothing any more, "" if it does. What is read is empty then; what is
        written it gets with `restore`."""
        ...

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Fields ``packets`` and ``bytes``; of ``indices`` alone where that is quicker."""
        ...

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Whole arrays by name; perhaps live views."""
        ...

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1`` of each array to zero."""
        ...

    def digests(self) -> dict[str, npt.NDArray[Any]]:
        """Digests since the last call, by name."""
        ...

    def give_up(self, reason: str) -> None:
        """From now on this switch answers nothing and gets nothing, for a reason: see `lost`."""
        ...

    def is_primary(self) -> bool:
        """Return False while another controller has the switch, which is `lost` then."""
        ...

    def restore(self) -> int:
        """Use a switch again that was lost and has restarted, or that another controller had:
        compare what it has with what was written to it, install what is missing, remove what is
        foreign, and return how many entries those were."""
        ...

    def hold(self) -> None:
        """Hold writes back until `send`, if that saves time."""
        ...

    @property
    def waiting(self) -> bool:
        """Return True if writes are held back."""
        ...

    def send(self) -> None:
        """Send what was held back, in its order, and hold nothing back any more."""
        ...


def for_each(controls: Iterable[Control], work: Callable[[Control], T]) -> list[T]:
    """``work`` on each switch, in order; over the wire on all at once."""
    every = list(controls)
    if not any(control.remote for control in every):
        return [work(control) for control in every]
    return list(_threads().map(work, every))


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool for all calls: the controller makes several a second."""
    return ThreadPoolExecutor(32, "switch")


@contextmanager
def batch(controls: Iterable[SwitchControl]) -> Iterator[None]:
    """Hold writes back and send them at the end, to all switches at once, each in its order.

    When this returns all switches have what was written: of two batches that follow each other,
    nothing of the second is in force before all of the first.
    """
    every = list(controls)
    for control in every:
        control.hold()
    try:
        yield
    finally:
        waiting = [control for control in every if control.waiting]
        for control in every:
            if not control.waiting:
                control.send()
        for_each(waiting, lambda control: control.send())
