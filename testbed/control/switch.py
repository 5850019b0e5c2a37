# SPDX-License-Identifier: Apache-2.0
"""The protocols through which the controller uses a switch, local or remote, with any program.

`testbed.control.local.LocalSwitch` is a soft switch in this process, and
`testbed.control.remote.switch.RemoteSwitch` one that is reached over P4Runtime and Thrift. Tests
may use any object with these methods.
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
Column = npt.NDArray[np.unsignedinteger] | tuple[npt.NDArray[np.unsignedinteger] | int, ...]
"""A field of the matches of many entries, see `testbed.control.entries.Entries.add`."""


class TableControl(Protocol):
    """A table of a switch; matches and parameters are in the order of the P4 program."""

    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int:
        """Add an entry and return its handle, a number; a ternary one needs a ``priority``."""
        ...

    def delete(self, handle: int) -> None:
        """Remove the entry with a handle, the number that `add` or `add_group_entry` returned."""
        ...

    def counters(self, handles: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Return the packets and bytes that hit each of n entries, uint64[n, 2]."""
        ...

    def set_default(self, action: str, params: Sequence[int] = ()) -> None:
        """Set the action that packets without a matching entry run."""
        ...

    def add_group_entry(self, match: Sequence[Any], group: int, priority: int | None = None) -> int:
        """Add an entry that runs a member of the group with this number; return its handle."""
        ...


class ActionProfileControl(Protocol):
    """An action profile of a switch, with members and groups of them."""

    def add_member(self, action: str, params: Sequence[int] = ()) -> int:
        """Add an action with its parameters as a member; return its number."""
        ...

    def add_group(self, members: Sequence[int]) -> int:
        """Add a group of members and return its number."""
        ...

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        """Replace the members of a group by the members with these numbers."""
        ...


class Tables(Protocol):
    """The tables and action profiles of a switch, by their full P4 names."""

    def table(self, name: str) -> TableControl:
        """Return the control of the table ``name``."""
        ...

    def action_profile(self, name: str) -> ActionProfileControl:
        """Return the control of the action profile ``name``."""
        ...


class SwitchControl(Tables, Protocol):
    """A switch: its tables, registers, counters and digests by their full P4 names.

    Digests have the program's fields in its order, then ``now_us`` and ``sequence``; the names of
    the fields differ.
    """

    @property
    def remote(self) -> bool:
        """Return True if an answer takes a round trip, so that switches are asked in parallel."""
        ...

    @property
    def lost(self) -> str:
        """Return why the switch no longer answers, "" if it answers.

        While it is lost, reads are empty; what is written reaches it with `restore`.
        """
        ...

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """Return an indirect counter with the fields ``packets`` and ``bytes``.

        If ``indices`` is given, only these elements are certain to be read.
        """
        ...

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return the register arrays ``names``, by name, unsigned [size of the array].

        They may be live views.
        """
        ...

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1``, counted from 0, of each array to zero."""
        ...

    def digests(self) -> dict[str, npt.NDArray[Any]]:
        """Return the digests since the last call, by name, each as a structured array [n]."""
        ...

    def give_up(self, reason: str) -> None:
        """Mark the switch as `lost` for ``reason``: reads are empty, writes do not reach it."""
        ...

    def is_primary(self) -> bool:
        """Return False while another controller has the switch, which is `lost` then."""
        ...

    def restore(self) -> int:
        """Use a switch again that has restarted or that another controller had.

        Entries that are missing are installed and foreign ones removed; returns their number.
        """
        ...

    def hold(self) -> None:
        """Collect writes until `send`, if that saves time."""
        ...

    @property
    def waiting(self) -> bool:
        """Return True if writes are held back."""
        ...

    def send(self) -> None:
        """Send the held-back writes in their order; later writes are sent at once again."""
        ...


def for_each(controls: Iterable[Control], work: Callable[[Control], T]) -> list[T]:
    """Return ``work(control)`` for each switch, in order; remote switches work in parallel."""
    every = list(controls)
    if not any(control.remote for control in every):
        return [work(control) for control in every]
    return list(_threads().map(work, every))


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the thread pool that all calls share; the controller makes several a second."""
    return ThreadPoolExecutor(32, "switch")


@contextmanager
def batch(controls: Iterable[SwitchControl]) -> Iterator[None]:
    """Hold writes back within the block and send them at its end, to all switches in parallel.

    Yields nothing. Each switch receives its writes in their order. When the block has ended, all
    switches have them, so that no write of a following batch takes effect before all of this one.
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
