"""Compile what a run on packets and its methods need into the cache (once an installation)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from scenarios.experiment import Progress, run_experiment
from scenarios.scenario import load_scenario
from scenarios.settings import Settings

__all__ = ["warm_up"]


def warm_up(progress: Progress) -> None:
    """The smallest run there is, thrown away; ``progress`` hears what is being compiled."""
    with tempfile.TemporaryDirectory() as folder:
        run_experiment(
            "faulty_links",
            load_scenario("faulty_links"),
            Settings(k=4, epochs=2, load=0.1),
            Path(folder) / "run",
            lambda what, share: progress(f"compiling (once): {what}", share),
        )
