# SPDX-License-Identifier: Apache-2.0
"""The tables of studies that take seconds are what the studies measure today.

Those that take longer are made anew by hand: `python -m tests.studies`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from tests.studies import changes, data, probes


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "write"), [("changes", changes.write_changes), ("probes", probes.write_probes)]
)
def test_a_table_is_what_its_study_measures(
    name: str, write: Callable[[Console], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = (data.FOLDER / f"{name}.csv").read_text()
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    monkeypatch.setattr(probes, "FOLDER", tmp_path)
    write(Console(quiet=True))
    assert (tmp_path / f"{name}.csv").read_text() == shown
