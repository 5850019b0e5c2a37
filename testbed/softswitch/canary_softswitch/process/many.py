# SPDX-License-Identifier: Apache-2.0
"""Many soft switches in one process, each in the network namespace of a node::

    python -m canary_softswitch.process.many

It takes an order in each line of its standard input. ``{"start": NAME, "namespace": PID, "log":
FILE, "arguments": [...]}`` starts a switch with the command line of `canary-switch`; its interfaces
and its Thrift server are in the network namespace of that process (null: of this one), and what it
says is appended to the file. ``{"end": NAME}`` ends one. All share the threads that move packets,
one a core, and those that serve clients. The process ends with status 0 on SIGTERM, and with 1 when
a switch cannot be started, which its log says.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from canary_softswitch.ports.namespaces import Namespace
from canary_softswitch.process.command_line import NAME, parse
from canary_softswitch.process.single import RunningSwitch, more_files, signal_sockets

FILES = 1 << 16  # the ports of a fabric's switches, and the connections of its controller
PROCESS = "canary-switches"  # at most 15 characters
FAILED = b"\0"  # no signal's number
NICE = -10  # what ten processes would get of a busy machine's processors
M_ARENA_MAX = -8  # of mallopt(3)


class Switches:
    """The switches that run in this process, by name."""

    def __init__(self) -> None:
        from canary_softswitch.p4runtime.server import Threads
        from canary_softswitch.ports.ports import Workers

        self._workers = Workers(len(os.sched_getaffinity(0)))
        self._threads = Threads()
        self._turn = threading.Lock()  # orders and the end of the process come from two threads
        self._running: dict[str, RunningSwitch] = {}
        self._known: set[str] = set()

    def follow(self, order: dict[str, Any]) -> None:
        """Start or end a switch, as an order of the standard input says.

        A switch that ran before and cannot be started again is left out.

        Raises:
            canary_softswitch.errors.SoftSwitchError: A new switch cannot be started.
        """
        with self._turn:
            self._follow(order)

    def _follow(self, order: dict[str, Any]) -> None:
        from canary_softswitch.errors import SoftSwitchError

        if "end" in order:
            if switch := self._running.pop(order["end"], None):
                switch.stop()
                # Its parts refer to each other, and its registers and tables are not Python's
                # memory: without this, they would stay until Python has some other reason to look.
                del switch
                gc.collect()
            return
        name = order["start"]
        try:
            self._running[name] = self._started(order)
        except SoftSwitchError:
            if name not in self._known:
                raise
        self._known.add(name)

    def _started(self, order: dict[str, Any]) -> RunningSwitch:
        from canary_softswitch.errors import SoftSwitchError

        log = Path(order["log"])

        def say(line: str) -> None:
            """Append a line to the log of the switch."""
            with log.open("a") as file:
                file.write(f"{line}\n")

        options = parse(order["arguments"])
        namespace = Namespace(order["namespace"])
        try:
            return RunningSwitch(options, self._workers, self._threads, say, say, namespace)
        except SoftSwitchError as e:
            say(f"{NAME}: {e}")
            raise

    def stop(self) -> None:
        """End all switches in parallel, as each waits for its clients."""
        with self._turn, ThreadPoolExecutor(len(self._running) or 1) as pool:
            list(pool.map(RunningSwitch.stop, self._running.values()))
            self._running.clear()


def _follow_orders(switches: Switches, failed: socket.socket) -> None:
    """Follow the orders of the standard input; send a byte to ``failed`` if one fails."""
    from canary_softswitch.errors import SoftSwitchError

    try:
        for line in sys.stdin:
            switches.follow(json.loads(line))
    except SoftSwitchError as e:
        print(f"{NAME}: {e}", file=sys.stderr)
        failed.send(FAILED)
    except Exception as e:  # a defect must not leave others waiting
        traceback.print_exception(e)
        failed.send(FAILED)


def _hurry() -> None:
    """Raise the scheduling priority of this process, if it may, so that packets do not wait."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError):  # sched(7): where sessions share the processors, theirs counts
        Path("/proc/self/autogroup").write_text(str(NICE))


def _one_arena() -> None:
    """Let all threads allocate memory from one place.

    The GNU C library gives threads places of their own. What a switch's threads leave free there
    is of no use to the threads of the switch that takes its place: a process of one switch and a
    client grew by 8 MB in 48 restarts, and does not grow so. It does nothing with another library.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def main() -> NoReturn:
    """Follow the orders of the standard input until SIGTERM or a failure; end the process."""
    _one_arena()
    gc.disable()  # until all modules are there: it would look at their objects again and again
    Path("/proc/self/comm").write_text(PROCESS)
    _hurry()
    more_files(FILES)
    ended, written = signal_sockets()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    switches = Switches()
    gc.freeze()
    gc.enable()
    threading.Thread(
        target=_follow_orders, args=(switches, written), name="orders", daemon=True
    ).start()
    status = ended.recv(1)
    switches.stop()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if status == FAILED else 0)


if __name__ == "__main__":
    main()
