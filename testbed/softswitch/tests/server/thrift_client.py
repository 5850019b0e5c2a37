# SPDX-License-Identifier: Apache-2.0
"""A client for the registers of a switch over Thrift: BMv2's and the soft switch alike.

One connection serves any number of calls::

    with RegisterClient(9090) as registers:
        counts = registers.read_all("CanaryEgress.usm.row0.count")

A value is a signed 64-bit integer on the wire: both switches answer 2**63 - 1 for anything
larger, so a register of more than 63 bits needs P4Runtime, which BMv2 does not serve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from canary_softswitch.errors import SoftSwitchError
from tests.patience import PATIENCE_S

REASONS = {1: "there is no such register", 2: "the index is out of range"}


class RegisterClient:
    """A connection; errors are ``SoftSwitchError``."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = PATIENCE_S) -> None:
        self.address = f"{host}:{port}"
        socket = TSocket(host, port)
        socket.setTimeout(timeout * 1000)
        self._transport = TBufferedTransport(socket, 1 << 16)
        self._protocol = TBinaryProtocol(self._transport)
        self._number = 0
        try:
            self._transport.open()
        except TException as e:
            raise SoftSwitchError(f"cannot connect to {self.address}: {e}") from None

    def __enter__(self) -> RegisterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def _call(
        self,
        method: str,
        arguments: list[tuple[int, int, Any]],
        result: Callable[[Any], Any] | None,
        what: str,
    ) -> Any:
        p = self._protocol
        self._number += 1
        try:
            p.writeMessageBegin(f"standard:{method}", TMessageType.CALL, self._number)
            p.writeStructBegin("args")
            writers = {TType.I32: p.writeI32, TType.I64: p.writeI64, TType.STRING: p.writeString}
            for number, kind, value in arguments:
                p.writeFieldBegin("", kind, number)
                writers[kind](value)
            p.writeFieldStop()
            p.writeMessageEnd()
            self._transport.flush()
            _, kind, _ = p.readMessageBegin()
            if kind == TMessageType.EXCEPTION:
                e = TApplicationException()
                e.read(p)
                raise SoftSwitchError(f"{self.address}: {what}: {e.message}")
            return self._result(result, what)
        except (TException, OSError, EOFError) as e:
            raise SoftSwitchError(f"{self.address}: {what}: {e or type(e).__name__}") from None

    def _result(self, result: Callable[[Any], Any] | None, what: str) -> Any:
        p, value, failed = self._protocol, None, False
        p.readStructBegin()
        code = 0
        while True:
            _, kind, number = p.readFieldBegin()
            if kind == TType.STOP:
                break
            if number == 0 and result:
                value = result(p)
            elif number == 1:
                failed = True
                p.readStructBegin()
                while (field := p.readFieldBegin())[1] != TType.STOP:
                    code = p.readI32() if field[1] == TType.I32 else p.skip(field[1]) or code
            else:
                p.skip(kind)
        p.readMessageEnd()
        if failed:
            raise SoftSwitchError(f"{self.address}: {what}: {REASONS.get(code, f'error {code}')}")
        return value

    @staticmethod
    def _i64s(p: Any) -> NDArray[np.int64]:
        _, n = p.readListBegin()
        return np.frombuffer(p.trans.readAll(8 * n), dtype=">i8").astype(np.int64)

    def read_all(self, name: str) -> NDArray[np.int64]:
        """All elements of a register array."""
        return self._call(
            "bm_register_read_all", [(1, TType.I32, 0), (2, TType.STRING, name)], self._i64s, name
        )

    def read(self, name: str, index: int) -> int:
        """One element of a register array."""
        return self._call(
            "bm_register_read",
            [(1, TType.I32, 0), (2, TType.STRING, name), (3, TType.I32, index)],
            lambda p: p.readI64(),
            f"{name}[{index}]",
        )

    def write(self, name: str, index: int, value: int) -> None:
        """Set one element of a register array."""
        self._call(
            "bm_register_write",
            [
                (1, TType.I32, 0),
                (2, TType.STRING, name),
                (3, TType.I32, index),
                (4, TType.I64, value),
            ],
            None,
            f"{name}[{index}]",
        )

    def reset(self, name: str) -> None:
        """Set all elements of a register array to 0."""
        self._call("bm_register_reset", [(1, TType.I32, 0), (2, TType.STRING, name)], None, name)

    def config_md5(self) -> bytes:
        """MD5 of the program's JSON."""
        return self._call("bm_get_config_md5", [], lambda p: p.readBinary(), "md5")
