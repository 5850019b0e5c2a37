# SPDX-License-Identifier: Apache-2.0
"""The few calls of BMv2's Thrift service that have no working counterpart in P4Runtime.

BMv2 multiplexes its services: methods are called ``standard:<method>``. The arguments and results
below are those of BMv2's ``standard.thrift`` and ``simple_switch.thrift``.

Reading the 30,720 elements of a meter takes this client 3 ms of its own time with the library's
accelerated protocol; the library's plain one takes 26 ms, numpy alone 1 ms. The soft switch has
calls of its own, service ``columns``, that carry many arrays in one message.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from thrift.protocol.TBase import TBase
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from testbed.errors import UserError

_CONTEXT = 0
_AT_ONCE = 64  # requests under way; they and their answers must fit into the sockets' buffers
_BUFFER = 1 << 16

PORT = 9090
"""The port of a switch's Thrift server, in the switch's own network namespace."""

CARRIED_BITS = 63
"""The widest register values that Thrift carries: it sends signed 64-bit numbers."""


class ThriftError(UserError):
    """The switch refused a call or sent an invalid answer. The message is one line."""


# Fields as Thrift's compiler writes them: number, type, name, details of the type, default.
_ARRAY = ((1, TType.I32, "context", None, None), (2, TType.STRING, "name", "UTF8", None))


class _Arguments(TBase):
    thrift_spec: tuple[Any, ...] = ()

    def __init__(self, *values: Any) -> None:
        for (_, _, name, _, _), value in zip(filter(None, self.thrift_spec), values, strict=True):
            setattr(self, name, value)


class _Array(_Arguments):
    thrift_spec = (None, *_ARRAY)


class _Element(_Arguments):
    thrift_spec = (
        *(None, *_ARRAY),
        (3, TType.I32, "index", None, None),
        (4, TType.I64, "value", None, None),
    )


class _Range(_Arguments):
    thrift_spec = (
        *(None, *_ARRAY),
        (3, TType.I32, "start", None, None),
        (4, TType.I32, "stop", None, None),
        (5, TType.I64, "value", None, None),
    )


class _Depth(_Arguments):
    thrift_spec = (None, (1, TType.I32, "packets", None, None))


class _Nothing(_Arguments):
    thrift_spec = (None,)


class _Columns(_Arguments):
    thrift_spec = (None, (1, TType.LIST, "names", (TType.STRING, "UTF8", False), None))


class _Fill(_Arguments):
    thrift_spec = (
        None,
        (1, TType.LIST, "names", (TType.STRING, "UTF8", False), None),
        (2, TType.I32, "start", None, None),
        (3, TType.I32, "stop", None, None),
        (4, TType.I64, "value", None, None),
    )


class _Refusal(TBase):
    thrift_spec = (None, (1, TType.I32, "code", None, None))
    code: int | None = None


class _Result(TBase):
    """The result of a call that returns a list of numbers or nothing."""

    thrift_spec = (
        (0, TType.LIST, "success", (TType.I64, None, False), None),
        (1, TType.STRUCT, "refusal", [_Refusal, _Refusal.thrift_spec], None),
    )
    success: list[int] | None = None
    refusal: _Refusal | None = None


class _Bytes(TBase):
    """The result of a call that returns a byte string."""

    thrift_spec = ((0, TType.STRING, "success", "BINARY", None), _Result.thrift_spec[1])
    success: bytes | None = None
    refusal: _Refusal | None = None


class RegisterClient:
    """Reads and writes register arrays over a Thrift connection, which this object then owns.

    Args:
        connection: The connection.
        columns: Whether the switch is a soft switch, whose service ``columns`` reads many arrays
            in one call.

    Every method raises ThriftError for what the switch refuses, and ConnectionError or TimeoutError
    when it is gone.
    """

    def __init__(self, connection: socket.socket, columns: bool = False) -> None:
        self._columns = columns
        transport = TSocket()
        transport.setHandle(connection)
        self._protocol = TBinaryProtocolAccelerated(
            TBufferedTransport(transport, _BUFFER), strictRead=True
        )

    def close(self) -> None:
        """Close the connection. It cannot be used afterwards."""
        self._protocol.trans.close()

    def read_all(
        self, names: Sequence[str], types: Sequence[np.dtype[Any]], sizes: Sequence[int]
    ) -> list[npt.NDArray[Any]]:
        """Return whole register arrays, in the order of ``names``.

        Args:
            names: The arrays' full P4 names.
            types: The unsigned dtype of each array.
            sizes: The number of elements of each array.
        """
        if self._columns:
            [found] = self._calls("columns:read", [_Columns(names)], _Bytes)
            lengths = [t.itemsize * size for t, size in zip(types, sizes, strict=True)]
            if found.success is None or len(found.success) != sum(lengths):
                raise ThriftError("the switch returned arrays of unexpected sizes")
            ends = np.cumsum(lengths).tolist()
            return [
                np.frombuffer(found.success, t, size, end - length)
                for t, size, end, length in zip(types, sizes, ends, lengths, strict=True)
            ]
        results = self._calls("standard:bm_register_read_all", [_Array(_CONTEXT, n) for n in names])
        return [
            np.array(result.success, np.int64).astype(t)
            for result, t in zip(results, types, strict=True)
        ]

    def ports(self) -> npt.NDArray[np.uint64]:
        """Return each port's number and the packets that it lost on sending, uint64[n, 2]; none
        for BMv2, which does not count them."""
        if not self._columns:
            return np.empty((0, 2), np.uint64)
        [found] = self._calls("columns:ports", [_Nothing()], _Bytes)
        return np.frombuffer(found.success or b"", np.uint64).reshape(-1, 2)

    def fill(self, names: Sequence[str], start: int, stop: int, value: int = 0) -> None:
        """Write a value into elements ``start`` to ``stop - 1``, from 0 on, of each array."""
        if self._columns:
            self._calls("columns:fill", [_Fill(names, start, stop, value)])
            return
        calls = [_Range(_CONTEXT, name, start, stop, value) for name in names]
        self._calls("standard:bm_register_write_range", calls)

    def write(self, name: str, values: dict[int, int]) -> None:
        """Write single elements of a register array; ``values`` maps index, from 0, to value."""
        calls = [_Element(_CONTEXT, name, index, value) for index, value in values.items()]
        self._calls("standard:bm_register_write", calls)

    def queue_depth(self, packets: int) -> None:
        """Set the length of every egress queue of a simple_switch, in packets."""
        self._calls("simple_switch:set_all_egress_queue_depths", [_Depth(packets)])

    def _calls(self, method: str, calls: Sequence[TBase], kind: type[Any] = _Result) -> list[Any]:
        """Call a method once for each of ``calls`` and return the results, in order.

        Up to ``_AT_ONCE`` requests are sent together, so that they cost one round trip.
        """
        results: list[Any] = []
        error = ""
        try:
            for at in range(0, len(calls), _AT_ONCE):
                some = calls[at : at + _AT_ONCE]
                for number, arguments in enumerate(some):
                    self._protocol.writeMessageBegin(method, TMessageType.CALL, number)
                    arguments.write(self._protocol)
                    self._protocol.writeMessageEnd()
                self._protocol.trans.flush()
                for _ in some:
                    result, refusal = self._answer(kind)
                    error = error or refusal
                    results.append(result)
        except (TTransportException, EOFError):
            raise ConnectionError("the switch closed its Thrift connection") from None
        except TException as e:
            raise ThriftError(f"this is not a Thrift server: {e}") from None
        if error:
            raise ThriftError(f"{method} was refused: {error}")
        return results

    def _answer(self, result_type: type[Any]) -> tuple[Any, str]:
        """Read an answer; return the result and why the call was refused, "" if it was not."""
        _, kind, _ = self._protocol.readMessageBegin()
        result = result_type()
        if kind == TMessageType.EXCEPTION:
            unknown = TApplicationException()
            unknown.read(self._protocol)
            refusal = str(unknown.message)
        else:
            result.read(self._protocol)
            refusal = "" if result.refusal is None else f"error {result.refusal.code}"
        self._protocol.readMessageEnd()
        return result, refusal
