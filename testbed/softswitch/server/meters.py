"""Meters as P4Runtime sees them: rates a second, where the switch has them a microsecond."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.runtime.meters import MeterRates
from testbed.softswitch.runtime.switch import Switch
from testbed.softswitch.server.arrays import only_modify, places
from testbed.softswitch.server.config import ArrayConfig
from testbed.softswitch.server.messages import p4runtime_pb2
from testbed.softswitch.server.ports import Ports
from testbed.softswitch.server.values import INT64_MAX, INVALID_ARGUMENT, P4Error

SECOND = 1e6  # microseconds


def read_config(config: Any, what: str) -> MeterRates:
    """The rates of a MeterConfig."""
    if config.eburst:
        raise P4Error(INVALID_ARGUMENT, f"{what}: v1model's meters have two rates, not an eburst")
    try:
        return MeterRates(config.cir / SECOND, config.cburst, config.pir / SECOND, config.pburst)
    except SoftSwitchError as e:
        raise P4Error(INVALID_ARGUMENT, f"{what}: {e}") from None


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


def read_meter(config: ArrayConfig, switch: Switch, ports: Ports, entry: Any) -> Iterator[Any]:
    """One meter of an array, or all."""
    at = places(config, entry)
    with ports.lock():
        found = [switch.meter(config.name, i) for i in at]
    for i, rates in zip(at, found, strict=True):
        e = p4runtime_pb2.Entity()
        e.meter_entry.meter_id, e.meter_entry.index.index = config.id, i
        fill_config(rates, e.meter_entry, "config")
        yield e
