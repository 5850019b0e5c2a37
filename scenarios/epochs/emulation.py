"""An emulation from the network's coming up to its going down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.backends import open_backend
from scenarios.epochs.loop import run
from scenarios.epochs.recording import Recorder
from scenarios.epochs.setup import set_up
from scenarios.settings import Settings
from testbed.faults.plan import FaultPlan
from testbed.network.virtual import LinkModel
from testbed.traffic.flows import Traffic

if TYPE_CHECKING:
    from scenarios.watch.run import WatchedRun

__all__ = ["emulate"]


def emulate(
    settings: Settings,
    plan: FaultPlan,
    traffic: Traffic,
    links: LinkModel,
    recorder: Recorder,
    logs: Path,
    progress: Callable[[str, float], None],
    watched: WatchedRun | None = None,
) -> None:
    """Bring a network up, run all epochs on it, record them, and take it down.

    Args:
        links: Of the network in virtual time.
        logs: The folder for the output of a real network's processes.
        progress: Called with the name of the current phase and its progress, from 0 to 1.
        watched: Is told of the network while it runs.

    Raises:
        testbed.network.network.NetworkError: A real network cannot be brought up (one line).
        testbed.softswitch.SoftSwitchError: There is no C compiler.
        ValueError: The faults or the traffic cannot be emulated (one line).
    """
    progress("switch program", 0.0)  # compiled once
    with open_backend(settings, links, logs) as backend:
        emulation = set_up(settings, plan, traffic, backend, progress=progress)
        if watched is None:
            run(emulation, recorder, lambda share: progress("emulation", share))
            return
        watched.up(emulation)

        def reached(share: float) -> None:
            progress("emulation", share)
            watched.look()

        run(emulation, recorder, reached, watched.epoch_ended)
        watched.network_ended()
