# SPDX-License-Identifier: Apache-2.0
"""A recorder of runs that nobody reads, and an observer of their epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import Epoch
from testbed.record.tables import Columns


class Nowhere:
    """A writer of run files (`testbed.record`) that drops what it is given: these tests look at the
    emulation itself."""

    def table(self, name: str, columns: Columns) -> None: ...
    def text(self, name: str, content: str) -> None: ...
    def json(self, name: str, content: Mapping[str, Any]) -> None: ...


class EpochObserver(Observer):
    """Passes each epoch that has ended on to a callback."""

    def __init__(self, ended: Callable[[Epoch], None]) -> None:
        self._ended = ended

    def epoch_ended(self, epoch: Epoch) -> None:
        self._ended(epoch)
