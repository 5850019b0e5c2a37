# SPDX-License-Identifier: Apache-2.0
"""A software switch that runs p4c's BMv2 JSON (v1model) as compiled C.

The program is turned into C, compiled once with the system's C compiler, cached, and run
bit for bit like BMv2's simple_switch::

    from canary_softswitch import Program, Switch

    program = Program.load("router.json", observe="meta.verdict")
    sw = Switch(program, seed=1)
    routes = sw.table("ingress.routes")
    handle = routes.add([(0x0A000000, 8)], "ingress.forward", [3, 0x00AA00000001])
    for port, data in sw.process(1, packet, now_us=1_000_000):
        ...
    print(sw.observed, routes.counter(handle), sw.register("ingress.seen")[:10])

Priorities follow P4Runtime: the larger wins. What the switch cannot run is refused by
``Program.load`` with ``UnsupportedProgram``, which names the construct and its P4 line.

Intentional differences from simple_switch:

- the caller gives the time (``now_us``); both timestamps of a packet are that time, queue
  depths and delays are 0 (the process has its ports' queues);
- ``random`` is a seeded generator of each switch: xoshiro256** seeded by splitmix64,
  uniform in lo..hi by rejection;
- fields of headers that were never valid read as 0 (in BMv2: what an earlier packet left);
- dividing by zero gives 0, an index outside a header stack reads as a header never valid,
  and a failed assert or assume drops the packet and raises ``SwitchFault`` (BMv2 aborts);
- ``log_msg`` writes only where the process keeps a log; with a wrong number of arguments it says so
  there (BMv2 ends);
- a packet that takes more than 256 passes of ingress or 1,280 of egress, or makes more than 1,024
  outputs, is cut off; a loop in an action ends after 1,000,000 jumps (BMv2's does not);
- ``lookahead`` beyond the end of a packet stops the parser with ``PacketTooShort``, as P4_16 has it
  (BMv2 does so in an assignment alone; in a ``select`` it reads on in its buffer, where an earlier
  packet may have left something);
- a header that computes its length (``length_exp``) stops the parser with an error if the length is
  not whole bytes, or more than the packet or ``max_length`` has (BMv2 aborts, or takes more);
- a prefix of an lpm key is counted from the key's own top bit whatever its width.

``canary-switch`` is the same switch as a process with real interfaces, P4Runtime and BMv2's Thrift
calls; it stands in for simple_switch_grpc (its README).

C code can push packets itself: see ``abi.h``, ``Program.process_address`` and
``Switch.handle``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary_softswitch.errors import (
        CompileError,
        InvalidProgram,
        NoCompiler,
        SoftSwitchError,
        SwitchFault,
        UnsupportedProgram,
    )
    from canary_softswitch.runtime.action_profiles import ActionProfile
    from canary_softswitch.runtime.instance import MeterRates
    from canary_softswitch.runtime.program import (
        ActionInfo,
        CounterInfo,
        DigestInfo,
        MeterInfo,
        Program,
        RegisterInfo,
        TableInfo,
        ValueSetInfo,
    )
    from canary_softswitch.runtime.switch import BatchResult, Switch
    from canary_softswitch.runtime.tables import Entry, Table

__all__ = [
    "ActionInfo",
    "ActionProfile",
    "BatchResult",
    "CompileError",
    "CounterInfo",
    "DigestInfo",
    "Entry",
    "InvalidProgram",
    "MeterInfo",
    "MeterRates",
    "NoCompiler",
    "Program",
    "RegisterInfo",
    "SoftSwitchError",
    "Switch",
    "SwitchFault",
    "Table",
    "TableInfo",
    "UnsupportedProgram",
    "ValueSetInfo",
]

_PLACES = {
    "errors": (
        "CompileError",
        "InvalidProgram",
        "NoCompiler",
        "SoftSwitchError",
        "SwitchFault",
        "UnsupportedProgram",
    ),
    "runtime.action_profiles": ("ActionProfile",),
    "runtime.instance": ("MeterRates",),
    "runtime.program": (
        "ActionInfo",
        "CounterInfo",
        "DigestInfo",
        "MeterInfo",
        "Program",
        "RegisterInfo",
        "TableInfo",
        "ValueSetInfo",
    ),
    "runtime.switch": (
        "BatchResult",
        "Switch",
    ),
    "runtime.tables": (
        "Entry",
        "Table",
    ),
}
"""The module of each name of this package."""

_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a name of this package when it is first used: its errors alone need no NumPy."""
    if name in _MODULE_OF:
        return getattr(import_module(f"canary_softswitch.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of this package, for completion."""
    return [*__all__]
