"""A soft switch in this process: live views of its registers, and nothing to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from testbed.control.switch import ActionProfileControl, TableControl
from testbed.softswitch import Switch

__all__ = ["LocalSwitch"]


@dataclass(frozen=True)
class LocalSwitch:
    """The face of `testbed.control.switch.SwitchControl` for a soft switch."""

    switch: Switch
    remote: bool = False
    lost: str = ""
    waiting: bool = False

    def table(self, name: str) -> TableControl:
        return self.switch.table(name)

    def action_profile(self, name: str) -> ActionProfileControl:
        return self.switch.action_profile(name)

    def counter(self, name: str, indices: Sequence[int] | None = None) -> npt.NDArray[Any]:
        """An indirect counter, a live view; whatever the indices."""
        return self.switch.counter(name)

    def read_registers(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Whole arrays by name, live views."""
        return {name: self.switch.register(name) for name in names}

    def reset_registers(
        self, names: Sequence[str], start: int = 0, stop: int | None = None
    ) -> None:
        """Set elements ``start`` to ``stop - 1`` of each array to zero."""
        for name in names:
            self.switch.register(name)[start:stop] = 0

    def digests(self) -> dict[str, npt.NDArray[Any]]:
        """Digests since the last call, by name: their fields, ``now_us`` and ``sequence``."""
        return self.switch.digests(ack=True) if self.switch.digests_pending else {}

    def hold(self) -> None:
        """Nothing: a write in process takes no time."""

    def send(self) -> None:
        """Nothing: nothing was held back."""
