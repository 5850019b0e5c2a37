# SPDX-License-Identifier: Apache-2.0
"""The Thrift server, which listens on loopback and serves each connection in a thread.

BMv2's services are multiplexed. Thrift's clients write tables of the switch directly; the entries
stored for P4Runtime are updated when they are next read.
"""

from __future__ import annotations

import ctypes
import socket
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from canary_softswitch import limits
from canary_softswitch.device.device import Device
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.thrift.standard import Standard
from canary_softswitch.thrift.state import State
from canary_softswitch.thrift.switch import Multicast, SimpleSwitch
from canary_softswitch.thrift.tables import Tables
from canary_softswitch.thrift.values import (
    Arguments,
    BmError,
    Call,
    Result,
    read_struct,
    write_value,
)

WRONG_ARGUMENTS = (
    TypeError,
    AttributeError,
    ValueError,
    KeyError,
    OverflowError,
    ctypes.ArgumentError,
)


@dataclass(frozen=True)
class Message:
    """A call of a client: its service and name, sequence number and arguments."""

    name: str
    kind: int
    number: int
    arguments: Arguments


Answer = Result | BmError | TApplicationException


class Services:
    """The calls of one device, by service and name."""

    def __init__(self, device: Device, port: int) -> None:
        switch = SimpleSwitch(device)
        arrays = Standard(device, port)
        standard = {
            **arrays.calls,
            **Tables(device).calls,
            **State(device, switch).calls,
        }
        self._device = device
        self._calls: dict[str, dict[str, Call]] = {
            "standard": standard,
            "": standard,
            "simple_switch": switch.calls,
            "simple_pre_lag": Multicast(device).calls,
            "columns": arrays.columns,
        }

    def names(self) -> list[str]:
        """Return the names of all calls in the form ``service:call``."""
        return [f"{s}:{c}" for s, calls in self._calls.items() if s for c in calls]

    def answer(self, call: Message) -> Answer:
        """Carry out a call and return its result, or the error to send to the client."""
        service, _, method = call.name.rpartition(":")
        do = self._calls.get(service, {}).get(method)
        if do is None:
            return TApplicationException(
                TApplicationException.UNKNOWN_METHOD, f"no method {call.name!r}"
            )
        try:
            self._device.settled()
            return do(call.arguments)
        except BmError as e:
            return e
        except WRONG_ARGUMENTS as e:
            # an argument of another type, or out of its range, as no client of BMv2 sends it
            return TApplicationException(
                TApplicationException.PROTOCOL_ERROR, f"wrong arguments of {call.name!r}: {e}"
            )
        except Exception as e:  # a defect here must not end the service
            traceback.print_exception(e)
            return TApplicationException(
                TApplicationException.INTERNAL_ERROR, f"{type(e).__name__}: {e}"
            )


def read_message(p: Any) -> Message:
    """Read a message from Thrift's protocol and return it with its arguments."""
    name, kind, number = p.readMessageBegin()
    arguments = read_struct(p)
    p.readMessageEnd()
    return Message(name, kind, number, arguments)


def write_answer(p: Any, call: Message, answer: Answer) -> None:
    """Write the answer to a call, unless it is one-way."""
    if call.kind == TMessageType.ONEWAY:
        return
    error = isinstance(answer, TApplicationException)
    kind = TMessageType.EXCEPTION if error else TMessageType.REPLY
    p.writeMessageBegin(call.name.rpartition(":")[2], kind, call.number)
    if error:
        answer.write(p)
    else:
        _write_result(p, answer)
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


BUFFER = 1 << 16
#: Seconds until accept is tried again: once a connection was ended, and if none could be.
SOON, PAUSE = 0.001, 0.1


class _Connection(TSocket):
    """A client's connection, which may be idle between calls but not before the first one."""

    def __init__(self, handle: socket.socket) -> None:
        super().__init__()
        self.setHandle(handle)
        self.handle: Any = handle
        self.called = False  # whether it has made a call
        self.working = False  # whether a call of it is served
        self.since = time.monotonic()
        self._begun = True

    def expect(self) -> None:
        """Prepare to wait for a call, with a time limit if it is the first one."""
        self._begun = not self.called
        self.handle.settimeout(limits.THRIFT_SECONDS if self._begun else None)

    def read(self, sz: int) -> bytes:
        """Return the received bytes, at most ``sz``; from now on the call has a time limit."""
        data: Any = super().read(sz)
        if not self._begun:
            self._begun = True
            self.handle.settimeout(limits.THRIFT_SECONDS)
        return data

    def shut(self) -> None:
        """End the connection; any thread may call this."""
        with suppress(OSError):
            self.handle.shutdown(socket.SHUT_RDWR)


class _Protocol(TBinaryProtocol):
    """Thrift's binary protocol; a message of more than ``limits.THRIFT_BYTES`` is an error.

    Lengths are checked before memory is allocated for them.
    """

    def __init__(self, connection: _Connection) -> None:
        super().__init__(TBufferedTransport(connection, BUFFER), strictRead=True, strictWrite=True)
        self._left = 0

    def _spend(self, n: int) -> None:
        if not 0 <= n <= self._left:
            raise TTransportException(TTransportException.SIZE_LIMIT, "the message is too long")
        self._left -= n

    def _check_string_length(self, length: int) -> None:
        self._spend(length)

    def _check_container_length(self, length: int) -> None:
        self._spend(length * limits.VALUE_BYTES)

    def readMessageBegin(self) -> Any:
        """Return the name, type and number of the next call, with a new allowance of bytes."""
        self._left = limits.THRIFT_BYTES
        return super().readMessageBegin()

    def readFieldBegin(self) -> Any:
        """Return the name, type and number of the next field; each costs some of the allowance."""
        self._spend(limits.VALUE_BYTES)
        return super().readFieldBegin()


class ThriftServer:
    """Listens on loopback and serves each connection in a thread of its own."""

    def __init__(self, device: Device, port: int, host: str = "127.0.0.1") -> None:
        try:
            with device.ports.namespace.entered():
                self._socket = socket.create_server((host, port), backlog=1024)
        except OSError as e:
            raise SoftSwitchError(f"cannot listen on {host}:{port}: {e.strerror}") from None
        self.port: int = self._socket.getsockname()[1]
        self._services = Services(device, self.port)
        self._connections: set[_Connection] = set()
        self._stopped = False
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept, name="thrift", daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                handle, _ = self._socket.accept()
            except OSError:
                if self._stopped:
                    return
                # There are no files left, or the client went.
                time.sleep(SOON if self._make_room() else PAUSE)
                continue
            if len(self._connections) >= limits.THRIFT_CONNECTIONS and not self._make_room():
                handle.close()
                continue
            connection = _Connection(handle)
            with self._lock:
                self._connections.add(connection)
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # there are no threads left
                self._close(connection)

    def _make_room(self) -> bool:
        """End the connection that has been idle longest; return False if all are being served.

        Connections that have made no call yet are ended first.
        """
        with self._lock:
            idle = [c for c in self._connections if not c.working]
            if not idle:
                return False
            least = min(idle, key=lambda c: (c.called, c.since))
            self._connections.discard(least)
            least.shut()
        return True

    def _close(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
            connection.close()

    def _serve(self, connection: _Connection) -> None:
        p = _Protocol(connection)
        try:
            connection.handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                connection.expect()
                call = read_message(p)
                connection.working = True
                answer = self._services.answer(call)
                connection.since = time.monotonic()
                connection.called, connection.working = True, False
                write_answer(p, call, answer)
        except (TException, OSError, EOFError, ValueError, KeyError, RecursionError):
            pass  # the client went, or does not speak Thrift
        finally:
            self._close(connection)

    def stop(self) -> None:
        """Stop listening and shut down all connections."""
        self._stopped = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._accepting.join(1)  # as long as it runs, it keeps the device and its tables
        self._socket.close()
        with self._lock:
            for connection in self._connections:
                connection.shut()
