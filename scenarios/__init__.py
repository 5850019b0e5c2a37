# SPDX-License-Identifier: Apache-2.0
"""Scenarios, and the commands that run them.

Import `run`, `load`, `Scenario` and the like from `canary`. ``from scenarios import run`` of older
programs goes on working in all versions 1.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a name of `canary`, where older programs look for it."""
    import canary

    if name in canary.__all__:
        return getattr(canary, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
