# SPDX-License-Identifier: Apache-2.0
"""The program that the switches of a run have: Canary's, or that with a measurement's own blocks.

A measurement with P4 of its own has two control blocks in its ``measurement.p4``: ``Arriving``,
which sees each packet of an ingress port once its flow ID is known, and ``Leaving``, which sees it
before the faults of an egress port. `p4/canary.p4` includes them, so every switch still forwards,
answers and counts as Canary's, and other measurements of the same run are not affected.

The programs that choose an uplink otherwise than by the hash of a flow (`testbed.control.routings`)
have such blocks, too: a measurement may have one of these for its program, and runs with any.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from testbed.control import routings
from testbed.control.routings import Routing
from testbed.dataplane import PROGRAM, source_digests
from testbed.errors import UserError
from testbed.measurements.measurement import Measurement


def switch_program(measurements: Iterable[Measurement], routing: Routing = "ecmp") -> Path:
    """Return BMv2's JSON of the program that the switches of a run need for its measurements and
    for the way in which they choose among equal-cost uplinks.

    Raises:
        UserError: Several measurements have control blocks of their own, one of them needs another
            routing, or was compiled with another Canary program (one line).
    """
    own = {each.name: each.program for each in measurements if each.program is not None}
    sprayed = [name for name, program in own.items() if program in routings.PROGRAMS.values()]
    if routing in routings.PROGRAMS:
        own = {name: program for name, program in own.items() if name not in sprayed}
        own[f"ROUTING={routing}"] = routings.PROGRAMS[routing]
    elif sprayed:
        raise UserError(
            f"{sprayed[0]} counts sprayed packets: use ROUTING=spray, flowlet or adaptive"
        )
    if len(own) > 1:
        raise UserError(
            f"{' and '.join(own)} have a switch program each, and a switch runs one: measure them "
            "in different runs"
        )
    for name, program in own.items():
        try:
            there = source_digests(program)
        except (OSError, ValueError) as error:
            raise UserError(f"the switch program of {name} cannot be read: {error}") from None
        if {**there, **source_digests()} != there:
            raise UserError(
                f"the switch program of {name} was compiled with another Canary program: compile "
                f"it again with make -C p4 {program.parent}/sources.sha256"
            )
        return program
    return PROGRAM
