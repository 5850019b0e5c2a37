# SPDX-License-Identifier: Apache-2.0
"""Epochs: when each switch changes parity, and in which epoch a packet was counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from testbed.control.switch import Tables
from testbed.dataplane import IDENTITY


def set_parity(control: Tables, parity: int) -> None:
    """Make a switch count in the meters of ``parity``, the epoch's number modulo 2, from now on."""
    control.table(IDENTITY.epoch).set_default(IDENTITY.set_parity, (parity,))


@dataclass(frozen=True)
class EpochClock:
    """Epochs of ``epoch_ns``, which each switch begins up to ``skew_ns`` early or late.

    Without a global clock the switches are only loosely synchronised (Canary, section III-G), so
    packets in flight at the end of an epoch may meet switches of both epochs.
    """

    epoch_ns: int
    skew_ns: int
    seed: int

    def flips(self, epoch: int, switches: list[int]) -> list[tuple[int, int]]:
        """Return (time in ns, switch) of each change from ``epoch`` to the next, by time."""
        rng = np.random.default_rng([self.seed, 0xE90C, epoch])
        skew = rng.integers(-self.skew_ns, self.skew_ns + 1, len(switches))
        at = (epoch + 1) * self.epoch_ns + skew
        return sorted(zip(at.tolist(), switches, strict=True))

    def latest(self, time_ns: int) -> int:
        """Return the latest epoch that any switch may be in at ``time_ns``."""
        return (time_ns + self.skew_ns) // self.epoch_ns

    def epoch_of(
        self, time_ns: npt.NDArray[np.uint64], parity: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int32]:
        """Return the epoch in which each packet was counted, int32[N].

        Args:
            time_ns: When each packet was seen, in ns, uint64[N].
            parity: The epoch parity that it carries, 0 or 1, int[N].
        """
        time, long = np.asarray(time_ns, np.uint64), np.uint64(self.epoch_ns)
        epoch = (time // long).astype(np.int32)
        step = np.where(time % long < long // np.uint64(2), np.int8(-1), np.int8(1))
        return epoch + np.where(epoch % 2 != parity, step, np.int8(0))


def parity_changes(
    clock: EpochClock, epoch: int, controls: Mapping[int, Tables]
) -> list[tuple[int, Callable[[], None]]]:
    """Return when each switch begins to count in the other instance of its meters, in ns, at the
    end of ``epoch``, and what makes it do so; ``controls`` are those of the switches, by number."""
    flips, parity = clock.flips(epoch, list(controls)), (epoch + 1) % 2
    return [(at, partial(set_parity, controls[switch], parity)) for at, switch in flips]
