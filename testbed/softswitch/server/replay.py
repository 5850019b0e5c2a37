"""Packets from pcap files instead of interfaces: BMv2's --use-files."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.server.ports import Ports

Packet = tuple[float, int, bytes]
MAGICS = {0xA1B2C3D4: 1e-6, 0xA1B23C4D: 1e-9}


def read_pcap(path: Path) -> list[tuple[float, bytes]]:
    """Time in seconds and bytes of each packet of a pcap file.

    Raises:
        SoftSwitchError: It cannot be read, is no pcap file, or has packets that were cut.
    """
    try:
        data = path.read_bytes()
    except OSError as e:
        raise SoftSwitchError(f"cannot read {path}: {e.strerror}") from None
    for order in "<>":
        if len(data) >= 24:
            tick = MAGICS.get(struct.unpack_from(order + "I", data)[0])
            if tick:
                return _records(data, order, tick, path)
    raise SoftSwitchError(f"{path} is not a pcap file")


def _records(data: bytes, order: str, tick: float, path: Path) -> list[tuple[float, bytes]]:
    out, at = [], 24
    while at < len(data):
        if at + 16 > len(data):
            raise SoftSwitchError(f"{path} ends within a packet")
        seconds, parts, stored, length = struct.unpack_from(order + "4I", data, at)
        at += 16
        if stored != length:
            raise SoftSwitchError(f"{path} has a packet of which only a part was kept")
        if at + stored > len(data):
            raise SoftSwitchError(f"{path} ends within a packet")
        out.append((seconds + parts * tick, data[at : at + stored]))
        at += stored
    return out


class Replay:
    """Packets of INTERFACE_in.pcap for each port; ``seconds`` after ``start`` they come in, by
    their time, each as soon as the one before it has passed."""

    def __init__(self, interfaces: Sequence[tuple[int, str]], seconds: int) -> None:
        self._seconds = max(0, seconds)
        packets: list[Packet] = [
            (when, port, data)
            for port, name in interfaces
            for when, data in read_pcap(Path(f"{name}_in.pcap"))
        ]
        self._packets = sorted(packets, key=lambda p: p[0])

    def start(self, ports: Ports) -> None:
        """Begin, in a thread of its own."""
        threading.Thread(target=self._run, args=(ports,), name="replay", daemon=True).start()

    def _run(self, ports: Ports) -> None:
        time.sleep(self._seconds)
        for _, port, data in self._packets:
            ports.inject(port, data)
        ports.say("debug", "Pcap reader: end of all input files")
