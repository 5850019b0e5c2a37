# SPDX-License-Identifier: Apache-2.0
"""The switch of an exported lab: its entries in a file, which a program beside the switch loads.

Run in the switch's network namespace, in the folder of the lab (`testbed.network.lab`)::

    python -m testbed.network.lab_switch load tor0_0
    python -m testbed.network.lab_switch read tor0_0

The first waits until the switch is up, loads the program and writes the entries; a number behind
the name sets the length of the egress queues in packets. The second prints what the switch counted,
as JSON: ``dropped``, the packets that its faults dropped by port, and ``registers``, the elements
that are not 0 by array and index.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import google.protobuf.text_format
import numpy as np

from testbed.control.remote.connection import ELECTION_ID, RemoteError, p4runtime_pb2
from testbed.control.remote.switch import RemoteSwitch, parsed
from testbed.control.remote.tables import RemoteProfile, RemoteTable, known, tables_of
from testbed.control.remote.thrift import PORT, RegisterClient
from testbed.dataplane import FAULT, INGRESS_FAULT, P4INFO, PROGRAM
from testbed.errors import UserError

START_S = 180


class WrittenSwitch:
    """Tables whose entries are collected (`testbed.control.switch.Tables`), for a file.

    Args:
        p4info: The program's P4Info, as text.
        device_id: The device ID of the switch that the entries are for.
    """

    def __init__(self, p4info: Path, device_id: int) -> None:
        self._request: Any = p4runtime_pb2.WriteRequest(device_id=device_id)
        self._tables, self._profiles = tables_of(self, parsed(p4info.read_text()))

    def table(self, name: str) -> RemoteTable:
        """Return the control of a table. Raises RemoteError if the program has no such table."""
        return known(self._tables, "table", name)

    def action_profile(self, name: str) -> RemoteProfile:
        """Return the control of an action profile. Raises RemoteError if there is none."""
        return known(self._profiles, "action profile", name)

    def write(self, kind: str, what: str, message: Any) -> None:
        """Collect the write of an entity; see `testbed.control.remote.connection.Connection`."""
        update = self._request.updates.add(type=p4runtime_pb2.Update.Type.Value(kind))
        getattr(update.entity, what).CopyFrom(message)

    def read(self, *entities: Any) -> list[Any]:
        """Return an empty list, as the entries are written to a file and no switch answers."""
        return []

    @property
    def text(self) -> str:
        """Return the collected writes as P4Runtime's ``WriteRequest``, as protobuf's text."""
        return google.protobuf.text_format.MessageToString(self._request)


def entries_of(path: Path) -> Any:
    """Return the ``WriteRequest`` of a file that holds `WrittenSwitch.text`.

    Raises:
        RemoteError: It cannot be read, or is something else.
    """
    try:
        text = path.read_text()
        return google.protobuf.text_format.Parse(text, p4runtime_pb2.WriteRequest())
    except (OSError, UnicodeDecodeError, google.protobuf.text_format.ParseError) as error:
        raise RemoteError(f"{path}: no P4Runtime entries: {error}") from None


def _connected(name: str, election_id: int) -> RemoteSwitch:
    """Return a session with a switch of the lab in this folder, once it is up."""
    deadline = time.monotonic() + START_S
    for family, address in (
        (socket.AF_UNIX, f"run/{name}.grpc"),
        (socket.AF_INET, ("127.0.0.1", PORT)),
    ):
        while True:
            with socket.socket(family, socket.SOCK_STREAM) as attempt:
                if not attempt.connect_ex(address):
                    break
            if time.monotonic() > deadline:
                raise RemoteError(f"{name} does not answer in {START_S} s: see run/{name}.log")
            time.sleep(0.1)
    return RemoteSwitch(
        name,
        f"unix:run/{name}.grpc",
        entries_of(Path(f"switches/{name}.txtpb")).device_id,
        Path("p4", P4INFO.name),
        lambda: RegisterClient(socket.create_connection(("127.0.0.1", PORT)), False),
        election_id=election_id,
    )


def load(name: str, queue_packets: int = 0) -> None:
    """Load the program and the entries of a switch of the lab in this folder.

    ``queue_packets`` is the depth of its queues in packets; 0 leaves the switch's own.

    Raises:
        RemoteError: It does not answer, or refuses them.
    """
    switch = _connected(name, ELECTION_ID)
    p4info, program = Path("p4", P4INFO.name), Path("p4", PROGRAM.name)
    switch.connection.push_program(parsed(p4info.read_text()), program)
    switch.hold()
    for update in entries_of(Path(f"switches/{name}.txtpb")).updates:
        what = update.entity.WhichOneof("entity")
        kind = p4runtime_pb2.Update.Type.Name(update.type)
        switch.connection.write(kind, what, getattr(update.entity, what))
    switch.send()
    if queue_packets:
        switch.set_queue_depth(queue_packets)
    if switch.lost:
        raise RemoteError(f"{name}: {switch.lost}")
    switch.close()


def counted(name: str) -> dict[str, Any]:
    """Return what a switch of the lab in this folder counted; see this module.

    Raises:
        RemoteError: It does not answer.
    """
    switch = _connected(name, 1)  # a controller that is connected stays the primary
    dropped = sum(switch.counter(fault.dropped)["packets"] for fault in (FAULT, INGRESS_FAULT))
    registers = switch.read_registers(switch.carried)
    if switch.lost:
        raise RemoteError(f"{name}: {switch.lost}")
    switch.close()
    return {
        "dropped": _not_zero(np.asarray(dropped)),
        "registers": {array: _not_zero(values) for array, values in registers.items()},
    }


def _not_zero(values: Any) -> dict[int, int]:
    return {index: int(values[index]) for index in np.flatnonzero(values).tolist()}


def main() -> None:
    """Run the program; an error is one line and exit code 2."""
    match sys.argv[1:]:
        case ["load", name]:
            load(name)
        case ["load", name, packets] if packets.isdecimal():
            load(name, int(packets))
        case ["read", name]:
            print(json.dumps(counted(name)))
        case _:
            raise UserError("say load NAME [PACKETS], or read NAME, in the folder of a lab")


if __name__ == "__main__":
    try:
        main()
    except (UserError, OSError) as problem:
        print(f"lab_switch: {problem}", file=sys.stderr)
        sys.exit(2)
