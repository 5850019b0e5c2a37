# SPDX-License-Identifier: Apache-2.0
"""A record that is kept in memory, for a diagnosis of what was measured just now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scenarios.experiment.setup import Emulation
from testbed.fabric.clos import Fabric
from testbed.fabric.segments import Segments
from testbed.record.tables import Columns


@dataclass(frozen=True)
class Memory:
    """Receives the tables and files of a record (`scenarios.experiment.recording.Recorder`)."""

    tables: dict[str, Columns] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str, columns: Columns) -> None:
        """Keep the columns of a table; one of the same name is replaced."""
        self.tables[name] = columns

    def text(self, name: str, content: str) -> None:
        """Keep the content of a text file."""
        self.files[name] = content

    def json(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep what a JSON file would hold, as it is."""
        self.files[name] = content


@dataclass(frozen=True)
class MemoryRecord:
    """What a `Memory` has received, as a record (`testbed.record.run.Record`).

    Attributes:
        config: The content of ``config.json``.
    """

    config: Mapping[str, Any]
    memory: Memory
    emulation: Emulation

    @property
    def network(self) -> Mapping[str, Any]:
        """Return the content of ``network.json``."""
        return self.memory.files["network.json"]

    @property
    def fabric(self) -> Fabric:
        """Return the fabric that the run emulates."""
        return self.emulation.topology

    @property
    def segments(self) -> Segments:
        """Return the path segments between monitors."""
        return self.emulation.segments

    def has(self, name: str) -> bool:
        """Return True if a table was recorded."""
        return name in self.memory.tables

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the columns of a table by name."""
        return self.memory.tables[name]
