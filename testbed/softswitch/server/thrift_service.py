"""BMv2's Thrift services, as simple_switch_CLI uses them.

The services are multiplexed; ``thrift_server`` has the transport. A missing call is answered
with Thrift's "unknown method". What Thrift's clients write of tables goes to the switch itself:
P4Runtime's controllers do not see it, as they keep their own books.
"""

from __future__ import annotations

import ctypes
import traceback
from dataclasses import dataclass
from typing import Any

from thrift.Thrift import TApplicationException, TMessageType, TType

from testbed.softswitch.server.device import Device
from testbed.softswitch.server.thrift_standard import Standard
from testbed.softswitch.server.thrift_switch import Multicast, SimpleSwitch
from testbed.softswitch.server.thrift_tables import Tables
from testbed.softswitch.server.thrift_values import (
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
    """A call as it came."""

    name: str
    kind: int
    number: int
    arguments: Arguments


Answer = Result | BmError | TApplicationException


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

    def answer(self, call: Message) -> Answer:
        """Do what a call asks for and return its answer."""
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
    """Read a call from a protocol."""
    name, kind, number = p.readMessageBegin()
    arguments = read_struct(p)
    p.readMessageEnd()
    return Message(name, kind, number, arguments)


def write_answer(p: Any, call: Message, answer: Answer) -> None:
    """Write the answer to a call, if it takes one."""
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
