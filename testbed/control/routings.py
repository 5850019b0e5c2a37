# SPDX-License-Identifier: Apache-2.0
"""How switches choose among equal-cost uplinks, and the programs that do so.

``ecmp``, by the hash of a flow, is Canary's program. In each of the others another control block
takes the place of its `Routing` (`p4/routing`), and leaves count what came by each spine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from testbed.control.switch import SwitchControl, batch
from testbed.dataplane import PROGRAM, ROUTING_BLOCK
from testbed.dataplane.program import CompiledProgram
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric

Routing = Literal["ecmp", "flowlet", "spray", "adaptive"]

_FLOWLET_FRAMES = 40
"""The full frames that a host can send in the pause that ends a flowlet: 500 us at 1 Gb/s, as in
LetFlow (NSDI 2017)."""
_RATE_UNIT = 8e6 / 256
"""Bits a second of a 256th of a byte in a us."""
_FRAME_BITS = 8 * 1538
"""Bits of a full frame, its preamble, FCS and gap."""
_FOLDER = PROGRAM.parents[1] / "routing"
PROGRAMS: Mapping[Routing, Path] = {
    name: _FOLDER / "build" / f"{name}.json" for name in ("spray", "flowlet", "adaptive")
}
"""BMv2's JSON of the program with each routing; ``ecmp`` is in the Canary program itself."""


def check_routing(routing: Routing, fabric: PacketFabric) -> None:
    """Raise UserError if switches cannot choose the uplinks of a fabric so (one line): a switch
    remembers one best uplink, which must lead to all that is not below it."""
    if routing == "adaptive" and fabric.groups is not None:
        raise UserError(
            f"ROUTING=adaptive needs uplinks that lead everywhere alike, not {fabric.title}: use "
            "ROUTING=spray or flowlet"
        )


def time_routing(
    routing: Routing, controls: Sequence[SwitchControl], line_rate_bps: float, link_rate_bps: float
) -> None:
    """Give switches what their routing needs to know of time: the pause between flowlets, or the
    rate at which queues empty.

    Args:
        routing: How the switches choose uplinks.
        controls: Their tables.
        line_rate_bps: The rate of the hosts' links, bits a second.
        link_rate_bps: That of the links between switches, 0 if they are infinitely fast: queues
            are then counted as if they had the line rate.
    """
    if routing not in ("flowlet", "adaptive"):
        return
    compiled = CompiledProgram(_FOLDER, routing)
    table = compiled.table(f"{ROUTING_BLOCK}.timing")
    action = compiled.action(table, f"{ROUTING_BLOCK}.set_timing", "value")
    if routing == "flowlet":
        value = round(_FLOWLET_FRAMES * _FRAME_BITS * 1e6 / line_rate_bps)
    else:
        value = max(1, round((link_rate_bps or line_rate_bps) / _RATE_UNIT))
    with batch(controls):
        for control in controls:
            control.table(table).set_default(action, (value,))
