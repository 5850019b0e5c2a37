# SPDX-License-Identifier: Apache-2.0
"""What a record or a diagnosis may lack, and a test knows to be there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return the value; the test fails if there is none.

    >>> present({"asked": 3}.get("asked"))
    3
    """
    assert value is not None
    return value
