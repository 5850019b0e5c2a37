# SPDX-License-Identifier: Apache-2.0
"""Compiles the functions that runs on packets and their methods use, once for each installation."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from analysis.methods.registry import METHODS, find_methods
from scenarios.experiment.observer import Observer, Progress, ProgressObserver
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from scenarios.process.signals import SIGNALS

HALVES = list(METHODS)[::2], list(METHODS)[1::2]
"""The methods in two halves, which two processes compile side by side in about equal time."""


def warm_up(progress: Progress) -> None:
    """Make the smallest run and discard it; ``progress`` is called with what is being compiled."""
    here, beside = HALVES
    other = multiprocessing.get_context("spawn").Process(target=smallest_run, args=(beside,))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # this process ends the other one
    try:
        other.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        observer = ProgressObserver(
            lambda what, share: progress(f"compiling (once): {what}", share)
        )
        smallest_run(here, observer)
        other.join()
    finally:
        other.kill()


def smallest_run(methods: Sequence[str], observer: Observer = Observer()) -> None:
    """Make a run that calls each compiled function of packets and of these methods, and discard
    it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(k=4, epochs=2, load=0.01)
        path = Path(folder) / "run"
        scenario = load_scenario("faulty_links")
        built = find_methods(",".join(methods))
        run_experiment("faulty_links", scenario, settings, path, built, observer)
