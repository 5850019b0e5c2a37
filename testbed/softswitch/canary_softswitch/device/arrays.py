# SPDX-License-Identifier: Apache-2.0
"""Reads and writes counters, registers and meters by P4Runtime.

P4Runtime's meter rates are per second, those of the switch per microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from canary_softswitch.device.config import ArrayConfig
from canary_softswitch.device.messages import (
    AT_ONCE,
    INT64_MAX,
    INVALID_ARGUMENT,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
    Column,
    P4Error,
    big_endian,
    counted,
    decode,
    joined,
    nested,
    number,
    octets,
    p4info_pb2,
    p4runtime_pb2,
)
from canary_softswitch.ports.ports import Ports
from canary_softswitch.runtime.instance import MeterRates
from canary_softswitch.runtime.switch import Switch

ENTITIES = 1  # field of ReadResponse
COUNTER_ENTRY, METER_ENTRY, REGISTER_ENTRY = (
    p4runtime_pb2.Entity.DESCRIPTOR.fields_by_name[name].number
    for name in ("counter_entry", "meter_entry", "register_entry")
)


def integers(array: NDArray[Any]) -> list[int]:
    """Return the elements of a register array [n], of any width, as Python integers."""
    if array.ndim == 2:
        return [int.from_bytes(element.tobytes(), "big") for element in array]
    if array.dtype.names is None:
        return array.tolist()
    return [lo | hi << 64 for lo, hi in array.tolist()]


def store(array: NDArray[Any], place: int | slice, value: int) -> None:
    """Set an element or a slice of a register array [n] to a number, whatever the array's dtype."""
    if array.ndim == 2:
        array[place] = np.frombuffer(value.to_bytes(array.shape[1], "big"), np.uint8)
        return
    array[place] = value if array.dtype.names is None else (value & (1 << 64) - 1, value >> 64)


def places(config: ArrayConfig, entry: Any) -> range:
    """Return the indices, from 0, that an entry of a request selects: one, or all without an index.

    Raises ``P4Error`` if the array has no element with the index.
    """
    if not entry.HasField("index"):
        return range(config.size)
    i = entry.index.index
    if not 0 <= i < config.size:
        raise P4Error(
            OUT_OF_RANGE, f"{config.name!r} has no element {i}: its size is {config.size}"
        )
    return range(i, i + 1)


def only_modify(kind: str, what: str) -> None:
    """Raise ``P4Error`` unless an update is a MODIFY; ``what`` names the entity."""
    if kind != "MODIFY":
        raise P4Error(INVALID_ARGUMENT, f"a {what} can only be modified")


def write_counter(
    config: ArrayConfig, array: NDArray[Any], ports: Ports, kind: str, entry: Any
) -> None:
    """Set one element of an indirect counter [n], or all; ``P4Error`` if the request is refused."""
    only_modify(kind, "counter entry")
    if not entry.HasField("data"):
        raise P4Error(INVALID_ARGUMENT, f"counter {config.name!r}: the data is missing")
    counts = counted(entry.data, f"counter {config.name!r}")
    at = places(config, entry)
    with ports.lock():
        array[at.start : at.stop] = counts


def _cells(
    config: ArrayConfig, values: NDArray[Any], entry: Any, write: Callable[[slice], list[Column]]
) -> Iterator[bytes]:
    """Yield the cells that a request selects, as serialized ReadResponses.

    ``values`` is a copy made at one moment; ``write`` returns the columns behind the index for a
    slice of the cells.
    """
    at = places(config, entry)
    kind = {"counter": COUNTER_ENTRY, "meter": METER_ENTRY, "register": REGISTER_ENTRY}

    def answer(some: slice) -> bytes:
        """Return the serialized ReadResponses of a slice of the selected cells."""
        indices = np.arange(at.start + some.start, at.start + some.stop)
        # the field of Index is there, though it is 0
        index = nested(2, number(1, indices))
        cell = [*number(1, config.id), *index, *write(some)]
        return joined(nested(ENTITIES, nested(kind[config.kind], cell)), len(indices))

    # The columns are freed before this waits for a reader, who may never come.
    for first in range(0, len(values), AT_ONCE):
        yield answer(slice(first, min(first + AT_ONCE, len(values))))


def read_counter(
    config: ArrayConfig, array: NDArray[Any], ports: Ports, entry: Any
) -> Iterator[bytes]:
    """Yield one element of an indirect counter [n], or all, as bytes of ReadResponses."""
    at = places(config, entry)
    with ports.lock():
        values = array[at.start : at.stop].copy()
    return _cells(config, values, entry, lambda some: nested(3, counts(config.unit, values[some])))


def counts(unit: int, values: Any) -> list[Column]:
    """Return CounterData of ``packets`` and ``bytes``, or of the one that ``unit`` counts."""
    size, packets = (np.minimum(values[name], INT64_MAX) for name in ("bytes", "packets"))
    columns = number(1, size) if unit != p4info_pb2.CounterSpec.PACKETS else []
    return columns + (number(2, packets) if unit != p4info_pb2.CounterSpec.BYTES else [])


def write_register(
    config: ArrayConfig, array: NDArray[Any], ports: Ports, kind: str, entry: Any
) -> None:
    """Set one element of a register array [n], or all; ``P4Error`` if the request is refused."""
    only_modify(kind, "register entry")
    data = entry.data.WhichOneof("data")
    if data not in ("bitstring", "bool"):
        raise P4Error(
            INVALID_ARGUMENT if data is None else UNIMPLEMENTED,
            f"register {config.name!r}: the data must be a bitstring",
        )
    value = (
        int(entry.data.bool)
        if data == "bool"
        else decode(entry.data.bitstring, config.width, f"register {config.name!r}")
    )
    at = places(config, entry)
    with ports.lock():
        store(array, slice(at.start, at.stop), value)


def read_register(
    config: ArrayConfig, array: NDArray[Any], ports: Ports, entry: Any
) -> Iterator[bytes]:
    """Yield one element of a register array [n], or all, as bytes of ReadResponses."""
    at = places(config, entry)
    with ports.lock():
        values = np.array(array[at.start : at.stop])

    def data(some: slice) -> list[Column]:
        """Return the columns of P4Data for a slice of the selected cells."""
        return nested(3, nested(1, [octets(big_endian(values[some]))]))

    return _cells(config, values, entry, data)


SECOND = 1e6  # microseconds


def read_config(config: Any, what: str) -> MeterRates:
    """Return the rates of a MeterConfig per microsecond; raise ``P4Error`` for invalid ones."""
    if config.eburst:
        raise P4Error(INVALID_ARGUMENT, f"{what}: v1model's meters have two rates, not an eburst")
    if not 0 <= config.cir <= config.pir:
        raise P4Error(
            INVALID_ARGUMENT,
            f"{what}: meter rates {config.cir} and {config.pir} a second: the committed one is at "
            "least 0 and at most the peak one",
        )
    if config.cburst < 0 or config.pburst < 0:
        why = f"meter bursts {config.cburst} and {config.pburst} are not 0 or more"
        raise P4Error(INVALID_ARGUMENT, f"{what}: {why}")
    return MeterRates(config.cir / SECOND, config.cburst, config.pir / SECOND, config.pburst)


def fill_config(rates: MeterRates | None, message: Any, name: str) -> None:
    """Set the MeterConfig of a message; a meter without rates has none."""
    if rates is None:
        return
    config = getattr(message, name)
    config.cir, config.cburst = _a_second(rates.committed_rate), rates.committed_burst
    config.pir, config.pburst = _a_second(rates.peak_rate), rates.peak_burst


def _a_second(rate: float) -> int:
    return min(round(rate * SECOND), INT64_MAX)


def write_meter(config: ArrayConfig, switch: Switch, ports: Ports, kind: str, entry: Any) -> None:
    """Set one meter of an array, or all; without a config they colour all packets green."""
    only_modify(kind, "meter entry")
    rates = None
    if entry.HasField("config"):
        rates = read_config(entry.config, f"meter {config.name!r}")
    at = places(config, entry)
    with ports.lock():
        for i in at:
            switch.set_meter(config.name, i, rates)


def read_meter(config: ArrayConfig, switch: Switch, ports: Ports, entry: Any) -> Iterator[bytes]:
    """Yield one meter of an array, or all, as bytes of ReadResponses."""
    at = places(config, entry)
    with ports.lock():
        values = switch.meters(config.name)[at.start : at.stop].copy()

    def rates(some: slice) -> list[Column]:
        """Return the columns of MeterConfig for a slice of the selected meters."""
        meters = values[some]
        return nested(3, meter_config(meters), meters["configured"] != 0)

    return _cells(config, values, entry, rates)


def meter_config(meters: NDArray[Any]) -> list[Column]:
    """Return the MeterConfig, rates a second, of meters as ``Switch.meters`` has them."""
    columns: list[Column] = []
    for i, (rate, burst) in enumerate(((1, 2), (3, 4))):
        a_second = np.round(meters["rates"]["rate"][:, i] * SECOND)
        limited = np.full(len(a_second), INT64_MAX, np.uint64)
        fits = a_second < float(INT64_MAX)  # as a float that limit is one more
        limited[fits] = a_second[fits]
        columns += number(rate, limited)
        columns += number(burst, meters["rates"]["burst"][:, i])
    return columns
