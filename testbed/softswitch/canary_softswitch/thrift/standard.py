# SPDX-License-Identifier: Apache-2.0
"""BMv2's service "standard" without its tables: registers, counters, meters, value sets, ports."""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Any

import numpy as np

from canary_softswitch import limits
from canary_softswitch.device.arrays import integers, store
from canary_softswitch.device.device import Device
from canary_softswitch.device.messages import INT64_MAX
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import Port
from canary_softswitch.runtime.instance import MeterRates
from canary_softswitch.thrift.values import (
    BOOL,
    DOUBLE,
    I32,
    I64,
    NOTHING,
    STRING,
    STRUCT,
    Arguments,
    BmError,
    Call,
    CounterErrorCode,
    DeviceErrorCode,
    IdErrorCode,
    MeterErrorCode,
    RegisterErrorCode,
    Result,
    SwapErrorCode,
    ValueSetErrorCode,
    listed,
    struct,
    text,
)


def meter_rates(rates: list[Arguments]) -> MeterRates:
    """Return the rates of two BmMeterRateConfig, of which the committed one is first."""
    if len(rates) != 2:
        raise BmError(MeterErrorCode.BAD_RATES_LIST)
    (low, low_burst), (high, high_burst) = ((r.get(1, 0.0), r.get(2, 0)) for r in rates)
    if low_burst < 0 or high_burst < 0:
        raise BmError(MeterErrorCode.INVALID_BURST_SIZE_VALUE)
    try:
        return MeterRates(low, low_burst, high, high_burst)
    except SoftSwitchError:
        raise BmError(MeterErrorCode.INVALID_INFO_RATE_VALUE) from None


def rates_result(rates: MeterRates | None) -> Result:
    """Return rates as two BmMeterRateConfig; an empty list for a meter without rates."""
    if rates is None:
        return listed(STRUCT, [])
    pairs = (
        (rates.committed_rate, rates.committed_burst),
        (rates.peak_rate, rates.peak_burst),
    )
    return listed(STRUCT, [struct((1, DOUBLE, r), (2, I32, b)) for r, b in pairs])


def counter_result(packets: int, size: int) -> Result:
    """Return packets and bytes as a BmCounterValue."""
    return struct((1, I64, min(size, INT64_MAX)), (2, I64, min(packets, INT64_MAX)))


class Standard:
    """BMv2's service ``standard`` without tables; each call returns its result with the type."""

    def __init__(self, device: Device, port: int) -> None:
        self.device = device
        self.port = port
        self.calls: dict[str, Call] = {
            "bm_register_read": self._read,
            "bm_register_read_all": self._read_all,
            "bm_register_write": self._write,
            "bm_register_write_range": self._write_range,
            "bm_register_reset": self._reset,
            "bm_counter_read": self._counter_read,
            "bm_counter_write": self._counter_write,
            "bm_counter_reset_all": self._counter_reset,
            "bm_meter_array_set_rates": self._meter_array,
            "bm_meter_set_rates": self._meter_set,
            "bm_meter_get_rates": self._meter_get,
            "bm_parse_vset_get": self._vset_get,
            "bm_parse_vset_add": self._vset_add,
            "bm_parse_vset_remove": self._vset_remove,
            "bm_parse_vset_clear": self._vset_clear,
            "bm_dev_mgr_show_ports": self._show_ports,
            "bm_dev_mgr_add_port": self._add_port,
            "bm_dev_mgr_remove_port": self._remove_port,
            "bm_load_new_config": self._no_swap,
            "bm_swap_configs": self._no_swap,
            "bm_get_id_from_name": self._id_of,
            "bm_get_config": lambda a: (STRING, self._config()),
            "bm_get_config_md5": lambda a: (STRING, hashlib.md5(self._config()).digest()),
            "bm_mgmt_get_info": lambda a: struct((1, I64, device.id), (2, I32, port)),
        }
        #: Not BMv2's: many registers in one message.
        self.columns: dict[str, Call] = {
            "read": self._read_columns,
            "fill": self._fill_columns,
            "ports": self._read_ports,
        }

    def _config(self) -> bytes:
        pipeline = self.device.pipeline
        return pipeline.config.code if pipeline else b"{}"

    def _pipeline(self, a: Arguments, without: IntEnum) -> Pipeline:
        """Return the pipeline in service; ``without``: the error's code if there is none."""
        if a.get(1, 0) or self.device.pipeline is None:
            raise BmError(without)
        return self.device.pipeline

    # ---- registers ----

    def _register(self, a: Arguments) -> tuple[Any, int]:
        """Return the array an argument list names, and its width; the device is locked."""
        pipeline, name = self._pipeline(a, RegisterErrorCode.INVALID_REGISTER_NAME), text(a, 2)
        registers = pipeline.config.program.registers
        if name not in registers:
            raise BmError(RegisterErrorCode.INVALID_REGISTER_NAME)
        return pipeline.switch.register(name), registers[name].width

    def _read(self, a: Arguments) -> Result:
        with self.device.lock:
            array, _ = self._register(a)
            i = a.get(3, 0)
            if not 0 <= i < len(array):
                raise BmError(RegisterErrorCode.INVALID_INDEX)
            with self.device.ports.lock():
                value = array[i : i + 1].copy()
        return I64, min(integers(value)[0], INT64_MAX)

    def _read_all(self, a: Arguments) -> Result:
        with self.device.lock:
            array, width = self._register(a)
            with self.device.ports.lock():
                values = array.copy()
        out = integers(values)
        return listed(I64, [min(v, INT64_MAX) for v in out] if width > 63 else out)

    def _write_at(self, a: Arguments, first: int, end: int, value: int) -> Result:
        with self.device.lock:
            array, width = self._register(a)
            if not 0 <= first <= end <= len(array):
                raise BmError(RegisterErrorCode.INVALID_INDEX)
            with self.device.ports.lock():
                store(array, slice(first, end), value & (1 << width) - 1)
        return NOTHING

    def _write(self, a: Arguments) -> Result:
        return self._write_at(a, a.get(3, 0), a.get(3, 0) + 1, a.get(4, 0))

    def _write_range(self, a: Arguments) -> Result:
        return self._write_at(a, a.get(3, 0), a.get(4, 0), a.get(5, 0))

    def _reset(self, a: Arguments) -> Result:
        with self.device.lock:
            return self._write_at(a, 0, len(self._register(a)[0]), 0)

    def _read_columns(self, a: Arguments) -> Result:
        """Return the elements of whole arrays, one array after the other.

        They are little-endian numbers of 1, 2, 4 or 8 bytes, whichever fits the array's elements.
        """
        with self.device.lock:
            arrays = [self._register({2: name})[0] for name in a.get(1, [])]
            if sum(array.nbytes for array in arrays) > limits.COLUMNS_BYTES:
                raise BmError(RegisterErrorCode.ERROR)
            with self.device.ports.lock():
                columns = [array.tobytes() for array in arrays]
        return STRING, b"".join(columns)

    def _read_ports(self, a: Arguments) -> Result:
        """Return the number of each port and the packets it lost on sending, to a full queue or an
        interface that is down, as uint64 in this machine's byte order."""
        counters = self.device.ports.counters()
        rows = [(number, port.tx_dropped) for number, port in counters.items()]
        return STRING, np.array(rows, np.uint64).tobytes()

    def _fill_columns(self, a: Arguments) -> Result:
        """Write one value into a range of elements of each array."""
        with self.device.lock:
            for name in a.get(1, []):
                self._write_at({2: name}, a.get(2, 0), a.get(3, 0), a.get(4, 0))
        return NOTHING

    # ---- counters and meters ----

    def _counter(self, a: Arguments) -> Any:
        pipeline, name = self._pipeline(a, CounterErrorCode.INVALID_COUNTER_NAME), text(a, 2)
        if name not in pipeline.config.program.counters:
            raise BmError(CounterErrorCode.INVALID_COUNTER_NAME)
        return pipeline.switch.counter(name)

    def _counter_read(self, a: Arguments) -> Result:
        with self.device.lock:
            array, i = self._counter(a), a.get(3, 0)
            if not 0 <= i < len(array):
                raise BmError(CounterErrorCode.INVALID_INDEX)
            with self.device.ports.lock():
                packets, size = array[i].item()
        return counter_result(packets, size)

    def _counter_write(self, a: Arguments) -> Result:
        with self.device.lock:
            array, i, value = self._counter(a), a.get(3, 0), a.get(4, {})
            if not 0 <= i < len(array):
                raise BmError(CounterErrorCode.INVALID_INDEX)
            with self.device.ports.lock():
                array[i] = value.get(2, 0), value.get(1, 0)
        return NOTHING

    def _counter_reset(self, a: Arguments) -> Result:
        with self.device.lock:
            array = self._counter(a)
            with self.device.ports.lock():
                array[:] = 0, 0
        return NOTHING

    def _meter(self, a: Arguments) -> tuple[Pipeline, str, int]:
        """Return the pipeline, and a meter array's name and size."""
        pipeline, name = self._pipeline(a, MeterErrorCode.INVALID_METER_NAME), text(a, 2)
        if name not in pipeline.config.program.meters:
            raise BmError(MeterErrorCode.INVALID_METER_NAME)
        return pipeline, name, pipeline.config.program.meters[name].size

    def _meter_array(self, a: Arguments) -> Result:
        with self.device.lock:
            pipeline, name, size = self._meter(a)
            rates = meter_rates(a.get(3, []))
            with self.device.ports.lock():
                for i in range(size):
                    pipeline.switch.set_meter(name, i, rates)
        return NOTHING

    def _meter_set(self, a: Arguments) -> Result:
        with self.device.lock:
            pipeline, name, size = self._meter(a)
            if not 0 <= a.get(3, 0) < size:
                raise BmError(MeterErrorCode.INVALID_INDEX)
            rates = meter_rates(a.get(4, []))
            with self.device.ports.lock():
                pipeline.switch.set_meter(name, a.get(3, 0), rates)
        return NOTHING

    def _meter_get(self, a: Arguments) -> Result:
        with self.device.lock:
            pipeline, name, size = self._meter(a)
            if not 0 <= a.get(3, 0) < size:
                raise BmError(MeterErrorCode.INVALID_INDEX)
            with self.device.ports.lock():
                return rates_result(pipeline.switch.meter(name, a.get(3, 0)))

    # ---- value sets ----

    def _vset(self, a: Arguments) -> tuple[Pipeline, str, int]:
        """Return the pipeline, and a value set's name and width in bits."""
        pipeline, name = self._pipeline(a, ValueSetErrorCode.INVALID_PARSE_VSET_NAME), text(a, 2)
        if name not in pipeline.config.program.value_sets:
            raise BmError(ValueSetErrorCode.INVALID_PARSE_VSET_NAME)
        return pipeline, name, pipeline.config.program.value_sets[name].width

    def _vset_get(self, a: Arguments) -> Result:
        with self.device.lock:
            pipeline, name, width = self._vset(a)
            values = pipeline.switch.value_set(name)
        return listed(STRING, [v.to_bytes((width + 7) // 8, "big") for v in values])

    def _vset_change(self, a: Arguments, add: bool) -> Result:
        with self.device.lock:
            pipeline, name, width = self._vset(a)
            value = int.from_bytes(a.get(3, b""), "big")
            if value >> width:
                raise BmError(ValueSetErrorCode.ERROR)
            values = [v for v in pipeline.switch.value_set(name) if v != value]
            with self.device.ports.lock():
                pipeline.switch.set_value_set(name, [*values, value] if add else values)
        return NOTHING

    def _vset_add(self, a: Arguments) -> Result:
        return self._vset_change(a, True)

    def _vset_remove(self, a: Arguments) -> Result:
        return self._vset_change(a, False)

    def _vset_clear(self, a: Arguments) -> Result:
        with self.device.lock:
            pipeline, name, _ = self._vset(a)
            with self.device.ports.lock():
                pipeline.switch.set_value_set(name, [])
        return NOTHING

    # ---- ports and management ----

    def _show_ports(self, a: Arguments) -> Result:
        up = self.device.ports.namespace.is_up
        return listed(
            STRUCT,
            [
                struct((1, I32, p.number), (2, STRING, p.interface), (3, BOOL, up(p.interface)))
                for p in self.device.ports.ports
            ],
        )

    def _add_port(self, a: Arguments) -> Result:
        try:
            self.device.ports.add(Port(a.get(2, 0), text(a, 1)))
        except SoftSwitchError:
            raise BmError(DeviceErrorCode.ERROR) from None
        return NOTHING

    def _remove_port(self, a: Arguments) -> Result:
        try:
            self.device.ports.remove(a.get(1, 0))
        except SoftSwitchError:
            raise BmError(DeviceErrorCode.ERROR) from None
        return NOTHING

    def _no_swap(self, a: Arguments) -> Result:
        raise BmError(
            SwapErrorCode.CONFIG_SWAP_DISABLED
        )  # programs come by P4Runtime or the command line

    def _id_of(self, a: Arguments) -> Result:
        pipeline, name = self._pipeline(a, IdErrorCode.INVALID_RESOURCE_NAME), text(a, 3)
        d = pipeline.config.program.definition
        kinds = [
            {t.name: t.index for t in d.tables},
            {p.name: p.index for p in d.profiles.values()},
            {c.name: c.index for c in d.counters.values()},
            {m.name: m.index for m in d.meters.values()},
            {r.name: r.index for r in d.registers.values()},
            {x.name: i for i, x in d.learn_lists.items()},
        ]
        kind = a.get(2, 0)
        if not 0 <= kind < len(kinds):
            raise BmError(IdErrorCode.INVALID_RESOURCE_TYPE)
        if name not in kinds[kind]:
            raise BmError(IdErrorCode.INVALID_RESOURCE_NAME)
        return I32, kinds[kind][name]
