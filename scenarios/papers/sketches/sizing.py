# SPDX-License-Identifier: Apache-2.0
"""The size that a sketch needs, by a formula and by decoding.

`clean_width` returns the width at which 80 % of the items have a bucket of their own in some row;
the sizes in the Canary paper's table II fit this rule. `smallest_width` applies the rule that the
paper states: 99 % of the tries succeed. A sketch that is decoded by peeling needs a little more
than `PEELING` buckets an item, which is far less than the first rule gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable

PEELING = 1.222
"""Buckets an item from which three hashes can be peeled, in the limit of many items (Goodrich and
Mitzenmacher, Allerton 2011, after Molloy 2005)."""


def clean_share(items: float, width: float, rows: int = 3) -> float:
    """Return the expected share of items, 0 to 1, that have a bucket of their own in some row.

    An item competes with ``items`` others for the ``width`` buckets of a row; theorem 2 of the
    Canary paper has ``items`` - 1 others.
    """
    return 1.0 - (1.0 - math.exp(-items / width)) ** rows


def clean_width(items: int, share: float = 0.8, rows: int = 3) -> int:
    """Return the least width of a row, in buckets, at which each item has a bucket of its own in
    some row with probability ``share``.

    >>> 3 * clean_width(10_000)
    34128
    """
    alone = 1.0 - (1.0 - share) ** (1.0 / rows)  # in one row: (1 - 1 / width)^(items - 1)
    return 1 if items < 2 else math.ceil(1.0 / (1.0 - alone ** (1.0 / (items - 1))))


def smallest_width(
    succeeds: Callable[[int, int], bool],
    low: int,
    *,
    share: float = 0.99,
    tries: int = 200,
    precision: float = 0.005,
) -> int:
    """Return the least width at which ``share`` of ``tries`` tries succeed.

    The search bisects, so it assumes that the share rises with the width. A width is rejected as
    soon as it has more failures than allowed.

    Args:
        succeeds: Called with a width and the number of a try, from 0; returns whether it succeeds.
        low: A width that is too small or just enough. Larger widths are tried until one is enough.
        share: Share of the tries that must succeed, 0 to 1.
        tries: Tries at each width.
        precision: The search stops once the width is known to this relative precision.

    Raises:
        ValueError: No width up to about a thousand times ``low`` is enough.
    """
    allowed = tries - math.ceil(share * tries)

    def enough(width: int) -> bool:
        """Return True if at this width, in buckets, the number of failures stays within what is
        allowed."""
        failures = 0
        for number in range(tries):
            failures += not succeeds(width, number)
            if failures > allowed:
                return False
        return True

    most = low = max(low, 1)
    if enough(low):
        return low
    high = max(low + 1, math.ceil(1.1 * low))
    while not enough(high):
        if high > 1000 * most:
            raise ValueError(f"no width up to {high:,} is enough")
        low, high = high, 2 * high
    while high - low > max(1, precision * high):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
