"""A recorder of runs that nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.record.tables import Columns

__all__ = ["Nowhere"]


class Nowhere:
    """A writer of run files (`testbed.record`) that drops what it is given: these tests look at the
    emulation itself."""

    def table(self, name: str, columns: Columns) -> None: ...
    def text(self, name: str, content: str) -> None: ...
    def json(self, name: str, content: Mapping[str, Any]) -> None: ...
