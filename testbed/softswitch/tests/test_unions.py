# SPDX-License-Identifier: Apache-2.0
"""Header unions and stacks of them: one member at a time is valid."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from canary_softswitch import Program, Switch

NOP, SIZE, SCALE = b"\x01", b"\x02\x04\x12\x34", b"\x03\x03\x07"
END, WORD = b"\x00", b"\x01\x02\x03\x04"


@pytest.fixture
def sw(load: Callable[..., Program]) -> Switch:
    return Switch(load("unions"))


def sent(sw: Switch, op: int, rest: bytes) -> tuple[int, int, bytes]:
    """(what ingress saw to be valid, value of the second option, bytes behind the first header)."""
    [(port, data)] = sw.process(0, bytes([op, 0, 0, 0]) + rest)
    assert port == 1
    return data[1], data[3], data[4:]


def test_a_stack_holds_different_members(sw: Switch) -> None:
    assert sent(sw, 0, NOP + SCALE + SIZE + END + WORD + b"rest") == (
        1 | 8 | 16,
        7,
        NOP + SCALE + SIZE + END + WORD + b"rest",
    )
    assert sent(sw, 0, SIZE + NOP + END + b"\x09") == (2 | 4 | 8, 0, SIZE + NOP + END + b"\x09")


def test_a_full_stack_stops_the_parser(sw: Switch) -> None:
    assert sent(sw, 0, 5 * NOP + END) == (1 | 4, 0, 5 * NOP + END)


def test_a_member_made_valid_makes_the_others_invalid(sw: Switch) -> None:
    assert sent(sw, 1, NOP + SCALE + END)[2] == b"\x02\x00\xbe\xef" + SCALE + END
    assert sent(sw, 3, NOP + END + WORD)[2] == NOP + b"\x00\x00\xca\xfe"


def test_assignment(sw: Switch) -> None:
    assert sent(sw, 2, NOP + END + WORD)[2] == NOP + WORD + WORD  # of a whole union
    assert sent(sw, 2, NOP + END)[2] == NOP  # of one without a valid member
    assert sent(sw, 4, SIZE + NOP + END)[2] == SIZE + SIZE + END  # of an element of a stack
    assert sent(sw, 6, NOP + END + WORD)[2] == NOP + END + END  # of a member
    assert sent(sw, 5, NOP + NOP + SCALE + END)[2] == NOP + NOP + NOP + END
