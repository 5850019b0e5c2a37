# SPDX-License-Identifier: Apache-2.0
"""Drawing of what was reproduced in part."""

from pathlib import Path

from scenarios.papers.plot import draw
from scenarios.papers.registry import EXPERIMENTS


def test_panels_without_rows_stay_empty(tmp_path: Path) -> None:
    """A capture of one's own (TRACE=) has no rows for the panels that vary the trace."""
    experiment = EXPERIMENTS["canary-7"]
    draw(experiment, {}, [tmp_path / "plot.svg"])
    assert (tmp_path / "plot.svg").stat().st_size > 0
