"""Emulates a run: brings its network up, runs all epochs, and takes the network down."""

from __future__ import annotations

from pathlib import Path

from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import Inputs
from scenarios.experiment.loop import run
from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import Recorder
from scenarios.experiment.setup import set_up
from testbed.network.virtual import LinkModel
from testbed.record.files import prepare_to_write


def emulate(
    inputs: Inputs,
    links: LinkModel,
    recorder: Recorder,
    logs: Path,
    observer: Observer,
) -> None:
    """Bring a network up, run all epochs on it, record them, and take it down.

    Args:
        inputs: The inputs of the run.
        links: Delay, rate and queues of the links of a network in virtual time.
        logs: The folder for the output of a real network's processes.
        observer: Receives the progress, and the events of the network.

    Raises:
        testbed.network.network.NetworkError: A real network cannot be brought up (one line).
        testbed.softswitch.SoftSwitchError: There is no C compiler.
        ValueError: The faults or the traffic cannot be emulated (one line).
    """
    observer.progressed("switch program", 0.0)  # it is compiled once, then cached
    if inputs.real_time:
        prepare_to_write()
    with open_backend(inputs, links, logs) as backend:
        emulation = set_up(inputs, backend, progress=observer.progressed)
        observer.network_up(emulation)
        run(emulation, recorder, observer)
        observer.network_ended()
