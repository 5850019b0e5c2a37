"""Packet-in and packet-out: the headers p4info describes, to bytes and back."""

from __future__ import annotations

from typing import Any

from testbed.softswitch.server.messages import p4runtime_pb2
from testbed.softswitch.server.values import INVALID_ARGUMENT, P4Error, decode, encode


class ControllerHeader:
    """A controller header: its fields in wire order."""

    def __init__(self, message: Any | None) -> None:
        self.fields = [(m.id, m.name, m.bitwidth) for m in message.metadata] if message else []
        self.bits = sum(width for _, _, width in self.fields)

    def pack(self, metadata: Any) -> bytes:
        """Bytes of a header from PacketMetadata; every field must be there."""
        given = {m.metadata_id: m.value for m in metadata}
        if len(metadata) != len(given) or set(given) != {f[0] for f in self.fields}:
            names = ", ".join(f[1] for f in self.fields) or "none"
            raise P4Error(INVALID_ARGUMENT, f"packet-out metadata must be, once each: {names}")
        value = 0
        for i, name, width in self.fields:
            value = value << width | decode(given[i], width, f"packet-out metadata {name!r}")
        padding = -self.bits % 8
        return (value << padding).to_bytes((self.bits + padding) // 8, "big")

    def unpack(self, data: bytes) -> Any:
        """PacketIn of a packet that starts with the header."""
        n = (self.bits + 7) // 8
        value, left = int.from_bytes(data[:n], "big") >> -self.bits % 8, self.bits
        message = p4runtime_pb2.PacketIn(payload=data[n:])
        for i, _, width in self.fields:
            left -= width
            message.metadata.add(metadata_id=i, value=encode(value >> left & (1 << width) - 1))
        return message
