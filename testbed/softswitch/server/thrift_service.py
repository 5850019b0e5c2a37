"""BMv2's Thrift services, as simple_switch_CLI uses them.

Strict binary protocol, buffered transport, multiplexed services. A call that is missing is answered
with Thrift's "unknown method". What Thrift's clients write of tables goes to the switch itself:
P4Runtime's controllers do not see it, as they keep their own books.
"""

from __future__ import annotations

import ctypes
import socket
import threading
import traceback
from contextlib import suppress
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.server.device import Device
from testbed.softswitch.server.thrift_standard import Standard
from testbed.softswitch.server.thrift_switch import Multicast, SimpleSwitch
from testbed.softswitch.server.thrift_tables import Tables
from testbed.softswitch.server.thrift_values import (
    NOTHING,
    BmError,
    Call,
    Result,
    read_struct,
    write_value,
)

BUFFER = 1 << 16
WRONG_ARGUMENTS = (
    TypeError,
    AttributeError,
    ValueError,
    KeyError,
    OverflowError,
    ctypes.ArgumentError,
)


class Services:
    """All calls of a device, by service and name."""

    def __init__(self, device: Device, port: int) -> None:
        standard = {**Standard(device, port).calls, **Tables(device).calls}
        self._device = device
        self._calls: dict[str, dict[str, Call]] = {
            "standard": standard,
            "": standard,
            "simple_switch": SimpleSwitch(device).calls,
            "simple_pre_lag": Multicast(device).calls,
        }

    def names(self) -> list[str]:
        """All calls as clients name them."""
        return [f"{s}:{c}" for s, calls in self._calls.items() if s for c in calls]

    def serve(self, p: Any) -> None:
        """Answer one call."""
        name, kind, number = p.readMessageBegin()
        arguments = read_struct(p)
        p.readMessageEnd()
        service, _, method = name.rpartition(":")
        call = self._calls.get(service, {}).get(method)
        error = None
        result: Result | BmError = NOTHING
        if call is None:
            error = TApplicationException.UNKNOWN_METHOD, f"no method {name!r}"
        else:
            try:
                self._device.settled()
                result = call(arguments)
            except BmError as e:
                result = e
            except WRONG_ARGUMENTS as e:
                # an argument of another type, or out of its range, as no client of BMv2 sends it
                error = TApplicationException.PROTOCOL_ERROR, f"wrong arguments of {name!r}: {e}"
            except Exception as e:  # a defect here must not end the service
                traceback.print_exception(e)
                error = TApplicationException.INTERNAL_ERROR, f"{type(e).__name__}: {e}"
        if kind == TMessageType.ONEWAY:
            return
        p.writeMessageBegin(method, TMessageType.EXCEPTION if error else TMessageType.REPLY, number)
        if error:
            TApplicationException(*error).write(p)
        else:
            _write_result(p, result)
        p.writeMessageEnd()
        p.trans.flush()


def _write_result(p: Any, result: Result | BmError) -> None:
    if isinstance(result, BmError):
        fields = [(1, TType.STRUCT, (TType.STRUCT, [(1, TType.I32, result.code)]))]
    elif result[0] == TType.VOID:
        fields = []
    else:
        value = result if result[0] == TType.STRUCT else result[1]
        fields = [(0, result[0], value)]
    write_value(p, TType.STRUCT, fields)


class ThriftServer:
    """Listens on loopback and serves each connection in a thread of its own."""

    def __init__(self, device: Device, port: int, host: str = "127.0.0.1") -> None:
        try:
            self._socket = socket.create_server((host, port), backlog=64)
        except OSError as e:
            raise SoftSwitchError(f"cannot listen on {host}:{port}: {e.strerror}") from None
        self.port: int = self._socket.getsockname()[1]
        self._services = Services(device, self.port)
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
                self._services.serve(p)
        except (TException, OSError, EOFError, ValueError, KeyError, RecursionError):
            pass  # the client went, or does not speak Thrift
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
