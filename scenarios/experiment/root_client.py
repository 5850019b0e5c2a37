"""The user's side of an emulation as root: sends the job to the root process, and writes the record
that comes back."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from scenarios.experiment.observer import Observer
from scenarios.experiment.root_job import RootJob, send_job
from scenarios.process.root_server import connect
from scenarios.process.signals import signals_blocked
from testbed.network.network import NetworkError
from testbed.record.atomic import atomic_write
from testbed.record.run import RunWriter


class _InRoot(Exception):
    """The traceback of an error in the root process; it becomes the cause of the same error
    here."""

    def __str__(self) -> str:
        return f"in the process of root:\n{self.args[0]}"


def emulate_as_root(
    job: RootJob,
    writer: RunWriter,
    observer: Observer,
) -> None:
    """Have the root process emulate a job, and write the record while it runs. The network is down
    when the function returns.

    Args:
        observer: Receives the progress, and the changes of the live page that the root process
            sends.

    Raises:
        NetworkError: There is no root process, it ended early, or the network cannot be brought up
            (one line).
        ValueError: The faults or the traffic cannot be emulated (one line).
    """
    try:
        peer = connect()
    except OSError:
        raise NetworkError("the process that runs networks as root has ended: try again") from None
    with peer, Connection(os.dup(peer.fileno())) as wire:
        say: dict[str, Callable[..., None]] = {
            "table": writer.table,
            "text": writer.text,
            "json": writer.json,
            "progress": observer.progressed,
            "page": observer.page_changed,
            "log": lambda name, content: _keep_log(writer, name, content),
        }
        ended = False
        try:
            send_job(wire, job)
            while not ended:
                what, *rest = _next(wire)
                ended = what in ("end", "error", "stopped")
                if what == "error":
                    error, trace = rest
                    raise error from _InRoot(trace)
                if what == "stopped":
                    raise NetworkError("the process that runs networks as root was stopped")
                if not ended:
                    say[what](*rest)
        except (EOFError, ConnectionError):
            raise NetworkError("the process that runs the network as root has died") from None
        finally:
            if not ended:
                _end(peer, wire, say["log"])


def _next(wire: Connection) -> tuple[Any, ...]:
    """Return the next message. Signals are blocked while it is read, because nothing can be read
    after half a message."""
    wire.poll(None)
    with signals_blocked():
        return wire.recv()


def _keep_log(writer: RunWriter, name: str, content: bytes) -> None:
    """Write a log of the root process into the folder ``logs`` of the run."""
    folder = writer.partial / "logs"
    folder.mkdir(exist_ok=True)
    with atomic_write(folder / name) as new:
        new.write_bytes(content)


def _end(peer: socket.socket, wire: Connection, keep_log: Callable[..., None]) -> None:
    """Tell the root process to take its network down, wait until it has, and keep its logs."""
    with suppress(OSError, EOFError):
        peer.shutdown(socket.SHUT_WR)
        while True:
            what, *rest = _next(wire)
            if what == "log":
                keep_log(*rest)
