# SPDX-License-Identifier: Apache-2.0
"""Runs compiled programs under the sanitizers: a process that copies itself for each of them.

It is started with the address sanitizer's library preloaded, reads lines of JSON, and answers each
with the exit code of the copy that ran the program; reports go to the file that the line names.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import random
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import canary_softswitch.runtime.program as programs
from canary_softswitch import MeterRates, SoftSwitchError, Switch
from canary_softswitch.runtime.program import Program

SECONDS = 60
"""Processor time that a program's packets may take."""


def run(request: dict[str, Any]) -> None:
    """Give a switch entries and state at random, and packets, as the request's number decides."""
    rng = random.Random(request["number"])
    library = ctypes.CDLL(request["library"])
    for name, (result, *arguments) in programs._SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    programs.load_library = lambda *_: library
    source = pickle.loads(Path(request["source"]).read_bytes())  # our own: made by `programs`
    switch = Switch(Program(source, None), seed=rng.randrange(2**32))
    push = library.fz_packets
    push.restype, push.argtypes = (
        ctypes.c_uint64,
        (*(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint32),),
    )
    frames = b"".join(bytes.fromhex(each).ljust(64, b"\0")[:64] for each in request["frames"])
    for part in range(4):
        with suppress(SoftSwitchError):
            fill(switch, rng)
        n, seed = request["packets"] // 4, rng.randrange(2**64)
        push(switch.handle, seed, n, frames, len(frames) // 64)
        if part == 2:
            switch.restart()


def fill(switch: Switch, rng: random.Random) -> None:
    """Write entries, meters, groups and sessions at random; some are refused."""
    with suppress(SoftSwitchError):
        switch.set_mirror(rng.randrange(8), rng.randrange(512), truncate=rng.choice((0, 1, 9, 200)))
        switch.set_multicast_group(rng.randrange(4), [(rng.randrange(512), k) for k in range(5)])
    for name, meter in switch.program.meters.items():
        for i in range(min(meter.size, 20)):
            switch.set_meter(name, i, MeterRates(rng.random(), 10, 1e300, 2**63 - 1))
    for name, table in switch.program.tables.items():
        actions = {a.name: a for a in switch.program.definition.actions.values()}
        for _ in range(20):
            with suppress(SoftSwitchError, KeyError, IndexError):
                action = rng.choice(table.actions)
                values = [value(rng, width) for _, width in actions[action].params]
                match = [element(rng, field.match, field.width) for field in table.key]
                priority = rng.randrange(9) if rng.random() < 0.5 else None
                switch.table(name).add(match, action, values, priority)


def value(rng: random.Random, width: int) -> int:
    """Return a number of ``width`` bits, often small."""
    return rng.choice((0, 1, rng.randrange(8), rng.getrandbits(max(width, 1)))) & ((1 << width) - 1)


def element(rng: random.Random, kind: str, width: int) -> Any:
    """Return a value for a field of a key, in the form that its kind of match takes."""
    one, two = value(rng, width), value(rng, width)
    if kind in ("ternary", "optional"):
        return one & two, two
    if kind == "range":
        return min(one, two), max(one, two)
    if kind == "lpm":
        return one, rng.randint(0, width)
    return bool(one) if kind == "valid" else one


def serve() -> None:
    """Answer requests until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            report = os.open(request["report"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(report, 1)
            os.dup2(report, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                run(request)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(9)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def command() -> Sequence[str]:
    """Return the command that starts this module as a server."""
    return [sys.executable, "-P", "-m", "tests.fuzz.runner"]


if __name__ == "__main__":
    serve()
