"""The data of an epoch that has ended, shared by the steps of the epoch loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.telemetry.minus_meters import MeterDump, MinusMeter, Rules
from scenarios.experiment.recording import History, Recorder
from scenarios.experiment.setup import Emulation


@dataclass
class Epoch:
    """An epoch that has ended, and what the steps of the epoch loop found out about it.

    Attributes:
        number: The epoch's number, from 0.
        dump: The non-empty buckets of all meters.
        rules: The DSM rules in force during the epoch.
        meter: The packets that each flow lost on its segment (Canary's minus meter).
    """

    number: int
    emulation: Emulation
    history: History
    writer: Recorder
    dump: MeterDump = field(init=False)
    rules: Rules = field(init=False)
    meter: MinusMeter = field(init=False)
