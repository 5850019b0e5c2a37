# SPDX-License-Identifier: Apache-2.0
"""Asks methods after each epoch of a run for what it measured (``DIAGNOSE=epoch``), or for what the
last N epochs did (``epoch:N``).

Canary pools n epochs, and filters segments that lost packets in fewer than n' of these (section
III-F): n is this window, and n' is `analysis.methods.canary.Filter`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.evaluation.by_epoch import Fault, by_epoch
from analysis.evaluation.report import run_methods
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import BuiltMethod
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.experiment.inputs import Layout
from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import Epoch
from testbed.record.documents import ByEpoch
from testbed.record.tables import Columns


class EpochVerdicts(Observer):
    """Diagnoses each epoch when it has ended.

    Args:
        methods: The methods that are asked.
        config: The content of the run's ``config.json``.
        layout: What the run consists of.
    """

    def __init__(
        self, methods: Sequence[BuiltMethod], config: Mapping[str, Any], layout: Layout
    ) -> None:
        self._methods, self._config = methods, config
        self._epoch_s, self.window = layout.epochs.length_ns / 1e9, layout.window
        self._faults = [
            Fault(fault.link, begin, end)
            for fault in layout.plan.faults
            for begin, end in fault.schedule or ((0.0, layout.duration_s),)
        ]
        self._found: dict[str, list[Diagnosis]] = {}

    def epoch_ended(self, epoch: Epoch) -> None:
        """Diagnose the epoch with each method whose measurements were made."""
        telemetry = read_telemetry(epoch.record(self._config))
        for method in self._methods:
            try:
                found = run_methods(telemetry, [method], lambda _: None)
            except MissingTelemetry:  # the summary of the run says so
                continue
            for name, diagnosis in found.items():
                self._found.setdefault(name, []).append(diagnosis)

    @property
    def columns(self) -> Columns:
        """Return the columns of the table ``verdicts``: a row for each blamed link."""
        rows = [
            (epoch, name, int(link))
            for name, every in self._found.items()
            for epoch, diagnosis in enumerate(every)
            for link in diagnosis.flagged
        ]
        rows.sort(key=lambda row: row[0])
        return {
            "epoch": np.array([row[0] for row in rows], np.int32),
            "method": [row[1] for row in rows],
            "link": np.array([row[2] for row in rows], np.int32),
        }

    def figures(self) -> dict[str, ByEpoch]:
        """Return, by method, how soon it found the faults, and its false alarms."""
        return {
            name: by_epoch(
                [diagnosis.flagged for diagnosis in every],
                self._faults,
                self._epoch_s,
                window=self.window,
                undirected=every[0].native == "undirected",
            )
            for name, every in self._found.items()
        }
