# SPDX-License-Identifier: Apache-2.0
"""Brings up a network of real packets that one can break and measure, for the prompt and for
`canary.net`; also one that runs a program of the user's, which cannot be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

from canary_softswitch.compiler.bmv2_program import DROP_PORT
from canary_softswitch.device.config import SUFFIXES, read_config
from canary_softswitch.device.messages import P4Error
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import Layout, inputs_of, layout_of
from scenarios.experiment.settings import SettingsError, make_settings
from scenarios.live.network import Live
from scenarios.live.power import Power
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import FaultPlan
from testbed.network.kinds import need_real
from testbed.network.mininet import MininetNetwork
from testbed.traffic.demand import make_traffic

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"backend": "softswitch", "faults": "none", "epochs": 1, "epoch_ms": 4000, "load": 0.3}
)
"""Settings of a network at the prompt that differ from those of a run."""

_OF_RUNS = ("epochs", "events", "tcp")
_SLOWEST, _FASTEST = 0.1, 10_000

NEEDS_CANARY = "needs the Canary program: leave PROGRAM out"
"""What is said of faults and methods where switches run a program of the user's."""


def session_layout(given: Mapping[str, Any]) -> Layout:
    """Return the layout of a network that stays up, with the faults that it begins with.

    Args:
        given: Settings by name; those that only a run has are refused.

    Raises:
        UserError: A setting makes no sense here, or does not fit the fabric (one line).
    """
    for name in _OF_RUNS:
        if name in given:
            raise SettingsError(f"{name.upper()} is of runs: a network at the prompt has no such")
    stands = {name: value for name, value in given.items() if value != "auto"}
    need_real(stands.get("backend", DEFAULTS["backend"]), "network")
    layout = layout_of(make_settings(stands, {**DEFAULTS, "tcp": 0}), name="live")
    if any(fault.schedule for fault in layout.plan.faults):
        raise SettingsError("FAULTS with times are of runs: leave them out, or use fault and heal")
    return layout


@dataclass(frozen=True)
class Own:
    """What a user's network has of its own.

    Attributes:
        program: A file of BMv2 JSON that every switch runs, None for this testbed's program.
        bw: The rate of every cable in Mb/s; 0: as fast as the machine.
    """

    program: Path | None = None
    bw: float = 0

    def check(self, layout: Layout) -> None:
        """Check the program and the rate before anything is brought up.

        Raises:
            SettingsError: One of them makes no sense (one line).
        """
        if self.bw and not _SLOWEST <= self.bw <= _FASTEST:
            raise SettingsError(f"BW={self.bw:g}: give a rate of {_SLOWEST:g} to {_FASTEST:g} Mb/s")
        if self.program is None:
            return
        if layout.plan.faults:
            raise SettingsError(f"FAULTS {NEEDS_CANARY}")
        if self._p4info is None:
            names = " or ".join(self.program.with_suffix("").name + s for s in SUFFIXES[:2])
            raise SettingsError(f"PROGRAM={self.program}: its P4Info is not beside it, as {names}")
        try:
            read_config(str(self.program), DROP_PORT)()
        except P4Error as error:
            raise SettingsError(f"PROGRAM={self.program}: {error.message}") from None

    @property
    def files(self) -> tuple[Path, Path]:
        """Return the files of the user's program and of its P4Info."""
        assert self.program is not None and self._p4info is not None
        return self.program, self._p4info

    @property
    def _p4info(self) -> Path | None:
        assert self.program is not None
        stem = self.program.name.removesuffix(".json")
        beside = (self.program.with_name(stem + suffix) for suffix in SUFFIXES)
        return next((file for file in beside if file.is_file()), None)


@contextmanager
def session(
    layout: Layout, logs: Path, own: Own | None = None
) -> Iterator[tuple[MininetNetwork, Power]]:
    """Give a block a network that is up, with its faults injected; it is down afterwards.

    Args:
        layout: See `session_layout`.
        logs: The folder for the output of the network's processes.
        own: The user's program and the rate of cables.

    Yields:
        The network, and a `Live`, or a `Power` where the program is the user's.

    Raises:
        testbed.network.network.NetworkError: Mininet or its switches cannot run here (one line).
    """
    own = own or Own()
    fabric = layout.fabric
    assert isinstance(fabric, PacketFabric)  # as its network sends packets
    if own.program is not None:
        backend = cast(Literal["bmv2", "softswitch"], layout.network.name)
        arguments = fabric, backend, *own.files, logs, layout.seed
        with MininetNetwork(*arguments, foreign=True, bw=own.bw) as network:
            yield network, Power(network)
        return
    traffic, _ = make_traffic(layout.demand, fabric)
    inputs = inputs_of(replace(layout, plan=FaultPlan()), traffic)
    with open_backend(inputs, logs, own.bw) as made:
        assert isinstance(made.network, MininetNetwork)
        live = Live(inputs, made)
        for fault in layout.plan.faults:
            live.inject(fault)
        yield made.network, live
