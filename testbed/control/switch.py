"""What the controller needs of a switch, whatever carries it: in process, or over the wire.

A switch in process gives live views of its registers and needs no batches. One that is reached over
the wire (`testbed.control.remote`) is a `RemoteControl` as well; the functions here do the right
thing for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy.typing as npt

__all__ = [
    "ActionProfileControl",
    "RemoteControl",
    "SwitchControl",
    "TableControl",
    "batch",
    "for_each",
    "read_registers",
    "reset_registers",
]

T = TypeVar("T")


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


@runtime_checkable
class RemoteControl(Protocol):
    """What a switch over the wire has besides."""

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]: ...

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None: ...

    def begin_batch(self) -> None: ...

    def waiting(self, stage: int) -> bool: ...

    def flush_batch(self, stage: int) -> None: ...

    def end_batch(self) -> None: ...


BATCH_STAGES = 3


def for_each(controls: Iterable[SwitchControl], work: Callable[[Any], T]) -> list[T]:
    """``work`` on each switch, in order; over the wire on all at once."""
    every = list(controls)
    if not any(isinstance(control, RemoteControl) for control in every):
        return [work(control) for control in every]
    return list(_threads().map(work, every))


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool for all calls: the controller makes several a second."""
    return ThreadPoolExecutor(32, "switch")


@contextmanager
def batch(controls: Iterable[SwitchControl]) -> Iterator[None]:
    """Collect writes to switches over the wire and send them together at the end.

    What makes an upstream count comes last of all switches' writes, and what ends it first, so that
    no packet is counted upstream alone; otherwise a switch's writes keep their order.
    """
    remote = [control for control in controls if isinstance(control, RemoteControl)]
    for control in remote:
        control.begin_batch()
    try:
        yield
    finally:
        for stage in range(BATCH_STAGES):
            due = [control for control in remote if control.waiting(stage)]
            for_each(due, lambda control, stage=stage: control.flush_batch(stage))  # type: ignore[arg-type]
        for control in remote:
            control.end_batch()


def read_registers(control: SwitchControl, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Whole register arrays by name; views where the switch is in this process."""
    if isinstance(control, RemoteControl):
        return control.read_registers(names)
    return {name: control.register(name) for name in names}


def reset_registers(
    control: SwitchControl, names: Sequence[str], start: int = 0, stop: int | None = None
) -> None:
    """Set elements ``start`` to ``stop - 1`` of each array to zero."""
    if isinstance(control, RemoteControl):
        control.reset_registers(names, start, stop)
        return
    for name in names:
        control.register(name)[start:stop] = 0
