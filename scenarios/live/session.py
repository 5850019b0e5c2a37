# SPDX-License-Identifier: Apache-2.0
"""Brings up a network of real packets that one can break and measure, for the prompt and for
`canary.net`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scenarios.experiment.backends import open_backend
from scenarios.experiment.fabrics import packet_fabric_of
from scenarios.experiment.inputs import demand_of, inputs_of
from scenarios.experiment.settings import REAL_TIME, Settings, SettingsError, make_settings
from scenarios.live.network import Live
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import FaultPlan
from testbed.faults.specification import parse_faults
from testbed.network.mininet import MininetNetwork
from testbed.network.virtual import LinkModel
from testbed.traffic.demand import make_traffic

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"backend": "softswitch", "faults": "none", "epochs": 1, "epoch_ms": 4000, "load": 0.3}
)
"""Settings of a network at the prompt that differ from those of a run."""

_OF_RUNS = ("epochs", "events", "tcp")


def session_settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings of a network that stays up.

    Args:
        given: Settings by name; those that only a run has are refused.

    Raises:
        SettingsError: A setting makes no sense here (one line).
    """
    for name in _OF_RUNS:
        if name in given:
            raise SettingsError(f"{name.upper()} is of runs: a network at the prompt has no such")
    stands = {name: value for name, value in given.items() if value != "auto"}
    if (backend := stands.get("backend", DEFAULTS["backend"])) not in REAL_TIME:
        raise SettingsError(f"BACKEND={backend} has no network: use {', '.join(REAL_TIME)}")
    return make_settings(stands, {**DEFAULTS, "tcp": 0})


def planned(settings: Settings) -> tuple[PacketFabric, FaultPlan]:
    """Return the fabric of a session and the faults that it begins with.

    Raises:
        UserError: The fabric or the faults make no sense (one line).
    """
    fabric = packet_fabric_of(settings)
    plan = parse_faults(settings.faults, fabric, settings.seed)
    if any(fault.schedule for fault in plan.faults):
        raise SettingsError("FAULTS with times are of runs: leave them out, or use fault and heal")
    return fabric, plan


@contextmanager
def session(settings: Settings, logs: Path) -> Iterator[tuple[MininetNetwork, Live]]:
    """Give a block a network that is up, with its faults injected; it is down afterwards.

    Args:
        settings: See `session_settings`.
        logs: The folder for the output of the network's processes.

    Raises:
        testbed.network.network.NetworkError: Mininet or its switches cannot run here (one line).
    """
    fabric, plan = planned(settings)
    traffic, _ = make_traffic(demand_of(settings), fabric)
    inputs = inputs_of(settings, fabric, FaultPlan(), traffic)
    with open_backend(inputs, LinkModel(), logs) as made:
        assert isinstance(made.network, MininetNetwork)
        live = Live(settings, inputs, made)
        for fault in plan.faults:
            live.inject(fault)
        yield made.network, live
