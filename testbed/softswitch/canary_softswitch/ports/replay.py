# SPDX-License-Identifier: Apache-2.0
"""Replays pcap files, one a port, as the option --use-files asks for."""

from __future__ import annotations

import heapq
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import Ports

Packet = tuple[float, int, bytes]
MAGICS = {0xA1B2C3D4: 1e-6, 0xA1B23C4D: 1e-9}


def read_pcap(path: Path) -> Iterator[tuple[float, bytes]]:
    """Open a pcap file or pipe; return an iterator of the time (s) and the bytes of each packet.

    Raises:
        SoftSwitchError: It cannot be read or is no pcap file; in the iterator: a packet is cut.
    """
    try:
        file = path.open("rb")
        head = file.read(24)
    except OSError as e:
        raise SoftSwitchError(f"cannot read {path}: {e.strerror}") from None
    for order in "<>":
        tick = MAGICS.get(struct.unpack(order + "I", head[:4])[0]) if len(head) == 24 else None
        if tick:
            return _records(file, order, tick, path)
    file.close()
    raise SoftSwitchError(f"{path} is not a pcap file")


def _records(file: BinaryIO, order: str, tick: float, path: Path) -> Iterator[tuple[float, bytes]]:
    with file:
        while head := file.read(16):
            if len(head) < 16:
                raise SoftSwitchError(f"{path} ends within a packet")
            seconds, parts, stored, length = struct.unpack(order + "4I", head)
            if stored != length:
                raise SoftSwitchError(f"{path} has a packet that is not complete")
            data = file.read(stored)
            if len(data) < stored:
                raise SoftSwitchError(f"{path} ends within a packet")
            yield seconds + parts * tick, data


class Replay:
    """Replays the packets of each port's INTERFACE_in.pcap, ``seconds`` after ``start``.

    They are processed in the order of their times, each as soon as the one before it is done. A
    pipe is read while it is written, as p4c's tests need: as in BMv2, a packet waits until every
    other pipe has its next one or has ended.
    """

    def __init__(self, interfaces: Sequence[tuple[int, str]], seconds: int) -> None:
        self._seconds = max(0, seconds)
        self._files = [self._packets(port, Path(f"{name}_in.pcap")) for port, name in interfaces]

    @staticmethod
    def _packets(port: int, path: Path) -> Iterator[Packet]:
        packets = ((when, port, data) for when, data in read_pcap(path))
        return packets if path.is_fifo() else iter(list(packets))  # reports errors at once

    def start(self, ports: Ports, failed: Callable[[str], None]) -> None:
        """Start a thread that replays; it calls ``failed`` with the error of a pipe."""
        run = threading.Thread(target=self._run, args=(ports, failed), name="replay", daemon=True)
        run.start()

    def _run(self, ports: Ports, failed: Callable[[str], None]) -> None:
        time.sleep(self._seconds)
        try:
            for _, port, data in heapq.merge(*self._files, key=lambda packet: packet[0]):
                ports.inject(port, data)
        except SoftSwitchError as e:
            failed(str(e))
        ports.say("debug", "Pcap reader: end of all input files")
