# SPDX-License-Identifier: Apache-2.0
"""Loads what nearly all pieces of work need, once, in the server that copies itself for each."""

from __future__ import annotations

import gc
from importlib import import_module


def _load() -> None:
    """Import what every run needs, so that the processes forked from this one have it."""
    gc.disable()  # until all is there: it would look at these objects again and again
    import_module("scenarios.many.compare")
    gc.freeze()  # a copy need not look at them either
    gc.enable()


_load()
