# SPDX-License-Identifier: Apache-2.0
"""The state of a switch in C, which its tables and profiles share, and the rates of meters."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.runtime.program import Program

_RATE = [("rate", "<f8"), ("burst", "<u8"), ("tokens", "<u8"), ("last", "<u8")]
METER = [("rates", _RATE, 2), ("configured", "<u4"), ("", "V4")]  # ss_meter of meters.h
USED = 1 << 32  # SS_USED: a row or member is there


class Instance:
    """An ``ss_switch`` of ``program``; freed when nothing refers to this object any more."""

    def __init__(self, program: Program, seed: int) -> None:
        self.program = program
        self.lib = program.lib
        handle = self.lib.ss_create(seed)
        if not handle:
            raise SoftSwitchError("out of memory")
        self.handle: int = handle
        weakref.finalize(self, self.lib.ss_destroy, handle)


@dataclass(frozen=True)
class MeterRates:
    """Rates of a meter in bytes or packets a microsecond, bursts in bytes or packets.

    A packet is red above the peak rate, yellow above the committed one, else green: 2, 1, 0.
    """

    committed_rate: float
    committed_burst: int
    peak_rate: float
    peak_burst: int

    def __post_init__(self) -> None:
        bursts = self.committed_burst, self.peak_burst
        if not 0 <= self.committed_rate <= self.peak_rate < float("inf"):
            raise SoftSwitchError(
                f"meter rates {self.committed_rate:g} and {self.peak_rate:g}: the committed one is "
                "at least 0 and at most the peak one"
            )
        if not all(0 <= b < 1 << 63 for b in bursts):
            raise SoftSwitchError(f"meter bursts {bursts[0]} and {bursts[1]} are not 0 or more")


def get_meter(lib: Any, meter: int) -> MeterRates | None:
    """Return the rates of the ``ss_meter`` at an address, None if none were set."""
    rates, bursts = (ctypes.c_double * 2)(), (ctypes.c_uint64 * 2)()
    if not lib.ss_meter_get(meter, rates, bursts):
        return None
    return MeterRates(rates[0], bursts[0], rates[1], bursts[1])


def set_meter(lib: Any, meter: int, rates: MeterRates | None) -> None:
    """Set or clear the rates of the ``ss_meter`` at an address and fill its buckets."""
    if rates is None:
        lib.ss_meter_clear(meter)
        return
    lib.ss_meter_set(
        meter,
        (ctypes.c_double * 2)(rates.committed_rate, rates.peak_rate),
        (ctypes.c_uint64 * 2)(rates.committed_burst, rates.peak_burst),
    )
