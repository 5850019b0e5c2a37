"""sudo: to go on as root where real packets need it, and to give back what root wrote."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.options import Given
from scenarios.stopping import undisturbed

if TYPE_CHECKING:
    from testbed.record.run import RunWriter

__all__ = ["new_run", "pick_backend"]


def pick_backend(switches: int, given: Given) -> str:
    """What BACKEND=auto means here; where it takes root, this process goes on as root."""
    from scenarios.backends import choose_backend

    choice = choose_backend(switches)
    print(f"BACKEND=auto: {choice.backend} ({choice.reason})", flush=True)
    if choice.sudo:
        # sudo passes no environment on
        said = [f"{option}={value}" for option, value in given.environment.items()]
        program = [sys.executable, "-P", "-m", "scenarios.cli", *sys.argv[1:], *said]
        os.execvp("sudo", ["sudo", "-n", *program, "--backend", choice.backend])
    return choice.backend


@contextmanager
def new_run(path: Path, numbered: bool) -> Iterator[RunWriter]:
    """A run's writer; nothing stays of a run that was not finished or left. What it writes as
    sudo's root belongs to the user who called sudo."""
    from testbed.record.run import RunWriter

    new = [place for place in path.parents if not place.exists()]
    writer = None
    try:
        with undisturbed():
            writer = RunWriter(path, numbered)
        yield writer
    finally:
        if writer is not None:
            with undisturbed():
                writer.abandon()
                _give_back(new, [writer.path, writer.partial])


def _give_back(new: list[Path], run: list[Path]) -> None:
    user, group = (int(os.environ.get(f"SUDO_{what}", "0")) for what in ("UID", "GID"))
    if os.geteuid() == 0 and user:
        below = [file for place in run for file in place.rglob("*")]
        for place in {*new, *run, *below}:
            if place.exists():
                os.chown(place, user, group)
