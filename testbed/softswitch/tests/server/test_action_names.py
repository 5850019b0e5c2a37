# SPDX-License-Identifier: Apache-2.0
"""A name of an action is unique in its table, not in the program.

p4c writes an action for each table that has it, and one without parameters for each direct call.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from canary_softswitch import Program, Switch
from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import p4runtime_pb2
from canary_softswitch.p4runtime.server import Server, Threads
from testbed.softswitch.tests.server.client import PROGRAMS, Client, p4info

ORDERS = 12


@pytest.fixture
def client(device: Device) -> Iterator[Client]:
    threads = Threads()
    server = Server(device, "127.0.0.1:0", threads)
    with Client(server.address) as c:
        yield c
    server.stop()
    threads.stop()


def orders() -> list[Any]:
    """The program with its actions as p4c writes them, in reverse, and shuffled."""
    made = []
    for number in range(ORDERS):
        program = json.loads((PROGRAMS / "direct.json").read_text())
        if number == 1:
            program["actions"].reverse()
        elif number:
            random.Random(number).shuffle(program["actions"])
        made.append(program)
    return made


NUMBERS = [pytest.param(n, marks=[pytest.mark.nightly] * (n > 4)) for n in range(ORDERS)]


@pytest.mark.parametrize("number", NUMBERS)
def test_entries_run_the_action_of_their_table(client: Client, device: Device, number: int) -> None:
    client.configure(
        info=p4info(PROGRAMS / "direct.p4info.txtpb"), code=json.dumps(orders()[number]).encode()
    )
    wanted = [
        client.entry("I.before", {"hdr.h.key": 5}, "I.one", [50]),
        client.entry("I.after", {"hdr.h.key": 6}, "I.one", [60]),
        client.entry("I.after", {"hdr.h.key": 7}, "I.two", [70, 71]),
        client.entry("I.after", {"hdr.h.key": 8}, "I.none"),
    ]
    client.write(*(("insert", e) for e in wanted))
    read = list(
        itertools.chain.from_iterable(
            client.read(table_entry=p4runtime_pb2.TableEntry(table_id=client.id("tables", t)))
            for t in ("I.before", "I.after")
        )
    )
    assert read == wanted
    assert device.pipeline is not None
    out = [device.pipeline.switch.process(0, bytes([key, 0, 0, 0])) for key in (4, 5, 6, 7, 8, 9)]
    assert [data[1:] for [(_, data)] in out] == [
        bytes(x) for x in ((1, 2, 3), (50, 2, 3), (60, 2, 3), (1, 70, 71), (1, 2, 7), (1, 2, 7))
    ]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_description_has_the_parameters(tmp_path: Any, number: int) -> None:
    path = tmp_path / "direct.json"
    path.write_text(json.dumps(orders()[number]))
    loaded = Program.load(path)
    assert [p[0] for p in loaded.actions["I.two"].params] == ["v", "w"]
    sw = Switch(loaded)
    sw.table("I.after").add([7], "I.two", [70, 71])
    assert sw.process(0, bytes([7, 0, 0, 0]))[0][1] == bytes([7, 1, 70, 71])
