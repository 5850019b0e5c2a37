"""Names that do not exist, and the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """``did you mean K?``, or all there are; upper and lower case count as the same.

    >>> nearest("kk", ["K", "FAULTS"])
    'did you mean K?'
    >>> nearest("colour", ["K", "FAULTS"])
    'choose of K, FAULTS'
    """
    names = list(known)
    folded = {each.upper(): each for each in names}
    near = difflib.get_close_matches(name.upper(), folded, n=1)
    return f"did you mean {folded[near[0]]}?" if near else f"choose of {', '.join(names)}"
