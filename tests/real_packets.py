# SPDX-License-Identifier: Apache-2.0
"""The pace of tests that run real packets: the machine's, not the test's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.network.speed import slowness

LONGEST_S = 300.0


def paced(epochs: int, epoch_ms: int, load: float) -> dict[str, float]:
    """Return the settings of a run in which a slow machine carries the same packets over more time.

    The factor is the one by which the product itself slows down its defaults. The test is skipped
    on a machine that would take more than `LONGEST_S` seconds for the packets alone.

    Args:
        epochs: Number of epochs.
        epoch_ms: Milliseconds of an epoch on a machine that the defaults are made for.
        load: Load of the hosts' links there.
    """
    slow = slowness()
    seconds = epochs * epoch_ms / 1000 * slow
    if seconds > LONGEST_S:
        pytest.skip(f"this machine is {slow:.1f} times too slow: it would take {seconds:.0f} s")
    return {"epochs": epochs, "epoch_ms": round(epoch_ms * slow), "load": round(load / slow, 4)}


def words(settings: Mapping[str, float]) -> list[str]:
    """Return settings as words of a command: ``EPOCH_MS=1500``."""
    return [f"{name.upper()}={value}" for name, value in settings.items()]
