"""The state of one switch in C, which the switch, its tables and its action profiles share."""

from __future__ import annotations

import weakref

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.runtime.program import Program

USED = 1 << 32  # SS_USED: a row or member is there


class Instance:
    """An ``ss_switch`` of ``program``; freed when nothing refers to this object any more."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program = program
        self.lib = program.lib
        handle = self.lib.ss_create(seed)
        if not handle:
            raise SoftSwitchError("out of memory")
        self.handle: int = handle
        weakref.finalize(self, self.lib.ss_destroy, handle)
