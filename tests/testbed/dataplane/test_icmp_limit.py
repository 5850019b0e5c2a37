# SPDX-License-Identifier: Apache-2.0
"""The limit of ICMP messages: which window keeps a rate, and the program that keeps the window."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testbed.dataplane import PROGRAM, DataPlaneError, adapted
from testbed.dataplane.adapted import COMPILED, IcmpLimit


@pytest.mark.parametrize("per_s", [0.1, 0.4, 2, 10, 50, 99, 100, 101, 1000, 10_000])
def test_a_limit_is_near_to_the_rate_and_not_above_it(per_s: float) -> None:
    limit = IcmpLimit.of(per_s)
    assert 0.88 * per_s < limit.messages / limit.window_s <= per_s
    assert limit.messages < 1 << 8 and limit.shift + 24 <= 56  # the bits that the program has


def test_the_programs_own_limit_is_that_of_the_paper() -> None:
    assert IcmpLimit.of(100) == COMPILED == IcmpLimit(17, 13)


@pytest.mark.parametrize("k", [4, 8, 16, 24, 48, 64])
def test_a_larger_switch_refuses_in_windows_of_the_same_length(k: int) -> None:
    limit = IcmpLimit.of(25 * k)
    assert limit.shift == COMPILED.shift and limit.messages >= 13 * k // 4


def test_another_limit_is_another_window_and_number_and_nothing_else() -> None:
    limit = IcmpLimit.of(10)
    made = json.loads(PROGRAM.read_text())
    limit.put_into(made)
    differ = list(differences(json.loads(PROGRAM.read_text()), made))
    assert sorted(differ) == [("0x0d", "0x0a"), ("0x11", "0x14"), ("0x11", "0x14")]
    assert (limit.shift, limit.messages) == (0x14, 0x0A)


def test_a_program_with_its_limit_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapted, "COMPILED", IcmpLimit(18, 26))
    with pytest.raises(DataPlaneError, match="ICMP limit in other places"):
        IcmpLimit.of(10).put_into(json.loads(PROGRAM.read_text()))


def differences(one: object, other: object) -> Iterator[tuple[object, object]]:
    """Return what differs in two JSON trees of the same shape."""
    assert type(one) is type(other)
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            yield from differences(one[key], other[key])
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            yield from differences(*pair)
    elif one != other:
        yield one, other
