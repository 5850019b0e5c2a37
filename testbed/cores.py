# SPDX-License-Identifier: Apache-2.0
"""How many processors this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of processors that this process may use; all of the machine's where a
    system, such as macOS, does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
