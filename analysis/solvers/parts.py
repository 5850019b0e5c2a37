# SPDX-License-Identifier: Apache-2.0
"""Run a function in parts, on all cores."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from testbed.cores import usable_cores

PARTS = 8
FEW = 20_000  # below so many units of work, starting threads takes longer than the work


def in_parts(n: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return the results of ``function(part, parts, *arguments)`` for each part, in order.

    The number of parts does not depend on the number of cores, so that sums over parts are the
    same on every machine.

    Args:
        n: The amount of work, in elements; with fewer than `FEW` there is one part and no thread.
        function: A function that releases the interpreter's lock, as kernels do; it works on part
            ``part`` of ``parts``.
        arguments: Passed on to it.
    """
    if n < FEW:
        return [function(0, 1, *arguments)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(lambda part: function(part, PARTS, *arguments), range(PARTS)))
