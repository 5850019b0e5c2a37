"""Writes the packets of one directed link to a pcap file while they are sent."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import BinaryIO

from scapy.utils import RawPcapWriter

from testbed.network.namespaces import inside

_ETH_P_ALL, _PACKET_OUTGOING = 3, 4
_ETHERNET = 1


class PacketDump:
    """Writes the frames that leave an interface to a pcap file, until `close`.

    Args:
        pid: A process in the interface's namespace.
        interface: The interface's name.
        path: The path of the file.
        file: The file, empty and open for writing; `close` closes it.

    Raises:
        OSError: The file cannot be written, or the interface is gone.
    """

    def __init__(self, pid: int, interface: str, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.packets = 0
        self._file = RawPcapWriter(file, linktype=_ETHERNET)  # pyright: ignore[reportArgumentType]
        try:
            self._file.write_header(None)
            with inside(pid):
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self._socket.bind((interface, _ETH_P_ALL))
            self._socket.settimeout(0.1)
        except BaseException:
            self._file.close()
            raise
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="dump", daemon=True)
        self._thread.start()

    def close(self) -> int:
        """Stop writing, close the file and return how many packets it has."""
        self._closing.set()
        self._thread.join()
        self._socket.close()
        self._file.close()
        return self.packets

    def _write(self) -> None:
        while not self._closing.is_set():
            try:
                data, (_, _, kind, *_) = self._socket.recvfrom(65535)
            except OSError:
                continue
            if kind == _PACKET_OUTGOING:
                seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
                self._file.write_packet(data, sec=seconds, usec=microseconds)
                self.packets += 1
