# SPDX-License-Identifier: Apache-2.0
"""Mutated messages of P4Runtime and Thrift into servers of their own."""

from __future__ import annotations

import random

from canary_softswitch.device.device import Device
from canary_softswitch.ports.ports import Ports
from canary_softswitch.thrift.server import Services
from testbed.softswitch.tests.server import test_hostile_requests, test_thrift_hostile
from testbed.softswitch.tests.server.client import JSON, P4INFO, PROGRAMS

MESSAGES = 500
"""Messages to a server, before the next one is started."""
THRIFT = ("rates", "selector")


def p4runtime(number: int) -> None:
    """Send a server mutated requests; an AssertionError says what it did wrong."""
    name = random.Random(number).choice(("canary", "rates", "matching", "router", "translated"))
    info, code = PROGRAMS / f"{name}.p4info.txtpb", PROGRAMS / f"{name}.json"
    if name == "canary":
        info, code = P4INFO, JSON
    test_hostile_requests.fuzz(info, code, number, MESSAGES)


def thrift(number: int) -> None:
    """Call a server's functions with arguments at random; an AssertionError says what it did
    wrong."""
    rng = random.Random(number)
    ports = Ports()
    device = Device(0, ports, 1)
    try:
        names = rng.choices(Services(device, 0).names(), k=MESSAGES)
    finally:
        device.close()
        ports.close()
    test_thrift_hostile.fuzz(rng.choice(THRIFT), names, number, 1)


SERVERS = {"p4runtime": p4runtime, "thrift": thrift}
