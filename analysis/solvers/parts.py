"""Compiled work in parts, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PARTS = 8
FEW = 20_000  # things to do, that take less time than to start threads


def in_parts(n: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``function(part, parts, *arguments)`` for each part, in order; ``n`` is how much there is.

    The number of parts does not depend on the number of cores, so that sums over parts are the
    same on every machine. The function must be compiled with ``nogil``.
    """
    if n < FEW:
        return [function(0, 1, *arguments)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda part: function(part, PARTS, *arguments), range(PARTS)))
