"""BMv2's Thrift service "standard", as far as registers and connecting clients need it.

Clients of BMv2 (such as simple_switch_CLI) work against it: strict binary
protocol, buffered transport, multiplexed services. A call it does not have is answered with
Thrift's "unknown method".
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.server.arrays import integers, store
from testbed.softswitch.server.p4runtime import Device

INVALID_NAME, INVALID_INDEX = 1, 2
INT64_MAX = (1 << 63) - 1
BUFFER = 1 << 16
Arguments = dict[int, Any]


class RegisterError(Exception):
    """BMv2's InvalidRegisterOperation."""

    def __init__(self, code: int) -> None:
        super().__init__(f"InvalidRegisterOperation {code}")
        self.code = code


def read_struct(p: Any) -> Arguments:
    """The fields of a struct by number; numbers, booleans and strings only."""
    out: Arguments = {}
    readers = {
        TType.BOOL: p.readBool,
        TType.BYTE: p.readByte,
        TType.I16: p.readI16,
        TType.I32: p.readI32,
        TType.I64: p.readI64,
        TType.STRING: p.readBinary,
    }
    p.readStructBegin()
    while True:
        _, kind, number = p.readFieldBegin()
        if kind == TType.STOP:
            break
        if kind in readers:
            out[number] = readers[kind]()
        else:
            p.skip(kind)
        p.readFieldEnd()
    p.readStructEnd()
    return out


def write_i64s(p: Any, values: list[int]) -> None:
    """A list<i64>, its elements packed at once."""
    p.writeListBegin(TType.I64, len(values))
    p.trans.write(b"".join([v.to_bytes(8, "big", signed=True) for v in values]))
    p.writeListEnd()


class Standard:
    """The calls. Each gives the type of its result (VOID for none) and the result."""

    def __init__(self, device: Device, port: int) -> None:
        self.device = device
        self.port = port
        self.calls: dict[str, Callable[[Arguments], tuple[int, Any]]] = {
            "bm_register_read": self._read,
            "bm_register_read_all": self._read_all,
            "bm_register_write": self._write,
            "bm_register_write_range": self._write_range,
            "bm_register_reset": self._reset,
            "bm_get_config": lambda a: (TType.STRING, self._config()),
            "bm_get_config_md5": lambda a: (TType.STRING, hashlib.md5(self._config()).digest()),
            "bm_mgmt_get_info": lambda a: (TType.STRUCT, self._info),
        }

    def _config(self) -> bytes:
        pipeline = self.device.pipeline
        return pipeline.config.device_config if pipeline else b"{}"

    def _info(self, p: Any) -> None:
        p.writeStructBegin("BmConfig")
        p.writeFieldBegin("device_id", TType.I64, 1)
        p.writeI64(self.device.id)
        p.writeFieldBegin("thrift_port", TType.I32, 2)
        p.writeI32(self.port)
        p.writeFieldStop()
        p.writeStructEnd()

    def _register(self, a: Arguments) -> tuple[Any, int]:
        """The array an argument list names, and its width; the device is locked."""
        pipeline = self.device.pipeline
        name = a.get(2, b"").decode(errors="replace")
        if a.get(1, 0) or pipeline is None or name not in pipeline.config.program.registers:
            raise RegisterError(INVALID_NAME)
        return pipeline.switch.register(name), pipeline.config.program.registers[name].width

    def _read(self, a: Arguments) -> tuple[int, Any]:
        with self.device.lock:
            array, _ = self._register(a)
            i = a.get(3, 0)
            if not 0 <= i < len(array):
                raise RegisterError(INVALID_INDEX)
            with self.device.ports.lock():
                value = array[i : i + 1].copy()
        return TType.I64, min(integers(value)[0], INT64_MAX)

    def _read_all(self, a: Arguments) -> tuple[int, Any]:
        with self.device.lock:
            array, width = self._register(a)
            with self.device.ports.lock():
                values = array.copy()
        out = integers(values)
        return TType.LIST, [min(v, INT64_MAX) for v in out] if width > 63 else out

    def _write_at(self, a: Arguments, first: int, end: int, value: int) -> tuple[int, Any]:
        with self.device.lock:
            array, width = self._register(a)
            if not 0 <= first <= end <= len(array):
                raise RegisterError(INVALID_INDEX)
            with self.device.ports.lock():
                store(array, slice(first, end), value & (1 << width) - 1)
        return TType.VOID, None

    def _write(self, a: Arguments) -> tuple[int, Any]:
        return self._write_at(a, a.get(3, 0), a.get(3, 0) + 1, a.get(4, 0))

    def _write_range(self, a: Arguments) -> tuple[int, Any]:
        return self._write_at(a, a.get(3, 0), a.get(4, 0), a.get(5, 0))

    def _reset(self, a: Arguments) -> tuple[int, Any]:
        with self.device.lock:
            return self._write_at(a, 0, len(self._register(a)[0]), 0)

    def serve(self, p: Any) -> None:
        """Answer one call."""
        name, kind, number = p.readMessageBegin()
        arguments = read_struct(p)
        p.readMessageEnd()
        service, _, method = name.rpartition(":")
        call = self.calls.get(method) if service in ("standard", "") else None
        answer = TMessageType.REPLY if call else TMessageType.EXCEPTION
        result: tuple[int, Any] | int = TType.VOID, None
        if call:
            try:
                result = call(arguments)
            except RegisterError as e:
                result = e.code
        if kind == TMessageType.ONEWAY:
            return
        p.writeMessageBegin(method, answer, number)
        if call is None:
            TApplicationException(
                TApplicationException.UNKNOWN_METHOD, f"no method {name!r}"
            ).write(p)
        else:
            self._write_result(p, result)
        p.writeMessageEnd()
        p.trans.flush()

    @staticmethod
    def _write_result(p: Any, result: tuple[int, Any] | int) -> None:
        p.writeStructBegin("result")
        if isinstance(result, int):
            p.writeFieldBegin("ouch", TType.STRUCT, 1)
            p.writeStructBegin("InvalidRegisterOperation")
            p.writeFieldBegin("code", TType.I32, 1)
            p.writeI32(result)
            p.writeFieldStop()
            p.writeStructEnd()
        elif result[0] != TType.VOID:
            kind, value = result
            p.writeFieldBegin("success", kind, 0)
            if kind == TType.I64:
                p.writeI64(value)
            elif kind == TType.LIST:
                write_i64s(p, value)
            elif kind == TType.STRING:
                p.writeBinary(value)
            else:
                value(p)
        p.writeFieldStop()
        p.writeStructEnd()


class ThriftServer:
    """Listens on loopback and serves each connection in a thread of its own."""

    def __init__(self, device: Device, port: int, host: str = "127.0.0.1") -> None:
        try:
            self._socket = socket.create_server((host, port), backlog=64)
        except OSError as e:
            raise SoftSwitchError(f"cannot listen on {host}:{port}: {e.strerror}") from None
        self.port: int = self._socket.getsockname()[1]
        self._standard = Standard(device, self.port)
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="thrift", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        s = TSocket()
        s.setHandle(connection)
        p = TBinaryProtocol(
            TBufferedTransport(s, BUFFER),
            strictRead=False,
            strictWrite=True,
            string_length_limit=1 << 20,
            container_length_limit=1 << 20,
        )
        try:
            while True:
                self._standard.serve(p)
        except (TException, OSError, EOFError):  # the client went, or does not speak Thrift
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)
            s.close()

    def stop(self) -> None:
        """Stop listening and end the connections."""
        with self._lock:
            connections = list(self._connections)
        for c in [self._socket, *connections]:
            with suppress(OSError):
                c.shutdown(socket.SHUT_RDWR)
        self._socket.close()
