"""What goes wrong in a command is one line and an exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from scenarios.stopping import exit_code, in_one_line
from testbed.fabric.names import plain

__all__ = ["errors", "stopped"]


@contextmanager
def errors() -> Iterator[None]:
    """A user's mistake is one line and exit code 2."""
    from testbed.network.network import NetworkError
    from testbed.network.processes import ProcessError
    from testbed.softswitch import SoftSwitchError

    try:
        yield
    except (ValueError, OSError, SoftSwitchError, NetworkError, ProcessError) as error:
        text = " ".join("; ".join([str(error), *getattr(error, "__notes__", [])]).split())
        print(f"canary: {plain(text)}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        raise typer.Exit(stopped(stop)) from None


def stopped(stop: BaseException) -> int:
    """Say it in one line; the exit code."""
    number = stop.args[0] if stop.args else signal.SIGINT
    kept = plain(" ".join(getattr(stop, "__notes__", ["nothing was kept"])))
    with suppress(OSError):  # a terminal that is gone
        print(in_one_line(number, kept), file=sys.stderr, flush=True)
    return exit_code(number)
