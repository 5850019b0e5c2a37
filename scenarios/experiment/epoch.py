"""An epoch that is being ended: what the steps of the epoch loop work on."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.telemetry.minus_meters import MeterDump, MinusMeter, Rules
from scenarios.experiment.recording import History, Recorder
from scenarios.experiment.setup import Emulation


@dataclass
class Epoch:
    """An epoch that is being ended, and what its steps found: the meters' buckets, the rules in
    force, the minus meter."""

    number: int
    emulation: Emulation
    history: History
    writer: Recorder
    dump: MeterDump = field(init=False)
    rules: Rules = field(init=False)
    meter: MinusMeter = field(init=False)
