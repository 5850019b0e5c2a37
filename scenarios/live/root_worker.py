# SPDX-License-Identifier: Apache-2.0
"""Emulates as root for a user's process, which is connected to its standard input.

The job is checked (`scenarios.experiment.root_job`). The record goes back to the user's process,
which trusts root and writes the files. When that process ends or closes its side of the connection,
the network is taken down.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scenarios.experiment.inputs import inputs_of
from scenarios.experiment.loop import emulate
from scenarios.experiment.observer import Observer, Observers
from scenarios.experiment.root_job import receive_job
from scenarios.live.watched_run import WatchedRun
from scenarios.process.signals import Stopped, raise_on_signals
from testbed.network.virtual import LinkModel
from testbed.record.tables import Columns


class Relay(Observer):
    """Sends the record and the events of a run to the user's process."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire
        self._one_at_a_time = threading.Lock()

    def send(self, *message: Any) -> None:
        """Send a message: its kind, then its content. Several threads may call this."""
        with self._one_at_a_time:
            self._wire.send(message)

    def table(self, name: str, columns: Columns) -> None:
        """Send the columns of a table of the record."""
        self.send("table", name, dict(columns))

    def text(self, name: str, content: str) -> None:
        """Send a text file of the record."""
        self.send("text", name, content)

    def json(self, name: str, content: Mapping[str, Any]) -> None:
        """Send a JSON file of the record."""
        self.send("json", name, dict(content))

    def progressed(self, what: str, share: float) -> None:
        """Send the progress of a phase, from 0 to 1."""
        self.send("progress", what, share)

    def publish(self, name: str, what: Any) -> None:
        """Send a part of the live page, except the progress, which the user's process shows
        itself."""
        if name != "doing":  # the user's process shows the progress that it receives
            self.send("page", name, what)

    def logs(self, folder: Path) -> None:
        """Send the content of all files in a folder."""
        for file in sorted(folder.iterdir()):
            self.send("log", file.name, file.read_bytes())


def serve(wire: Connection) -> None:
    """Receive a job and emulate it; the last message says how it ended."""
    relay, logs = Relay(wire), Path(tempfile.mkdtemp(prefix="canary-logs-"))
    end: tuple[Any, ...] = ("end",)
    try:
        job = receive_job(wire)
        threading.Thread(target=_end_with, args=(wire,), name="end", daemon=True).start()
        with ExitStack() as stack:
            observer: Observer = relay
            if job.watched:
                watched = WatchedRun(relay)
                stack.callback(watched.close)
                observer = Observers(relay, watched)
            inputs = inputs_of(job.settings, job.fabric, job.plan, job.traffic)
            emulate(inputs, LinkModel(), relay, logs, observer)
    except (Stopped, EOFError):
        end = ("stopped",)
    except Exception as error:
        end = ("error", error, traceback.format_exc())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the network is down: nothing is left to end
    with suppress(OSError):  # the user's process has ended
        relay.logs(logs)
    shutil.rmtree(logs, ignore_errors=True)
    with suppress(OSError):
        relay.send(*end)


def _end_with(wire: Connection) -> None:
    """End this process, after its cleanup, when the user's process closes its side of the
    connection."""
    with suppress(EOFError, OSError):
        wire.recv_bytes(0)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    raise_on_signals()
    serve(Connection(os.dup(0)))
    os._exit(0)  # only waiting threads are left
