"""The settings of a run: their meaning, defaults and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from analysis.telemetry.flow_observations import KINDS
from testbed.control.capacity import check_tables
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.segments import Monitors
from testbed.faults.noise import noise_range

__all__ = ["Settings", "SettingsError", "make_settings"]


LINE_RATE = {"virtual": 1e9, "flow": 1e9, "softswitch": 10e6, "bmv2": 2e6}

# Real switches are slower than virtual time: longer epochs of slower traffic hold as many packets.
REAL_TIME_DEFAULTS: dict[str, dict[str, Any]] = {
    "softswitch": {"epochs": 8, "epoch_ms": 7_000, "tcp": 0.1},
    "bmv2": {"epochs": 8, "epoch_ms": 16_000, "tcp": 0.1},
}

# Without packets time costs little, and segments of a large fabric need it: there are more of them.
FLOW_DEFAULTS: dict[str, Any] = {"epoch_ms": 1000}


class SettingsError(ValueError):
    """A setting has a value that makes no sense. One line that says what to do."""


@dataclass(frozen=True)
class Settings:
    """Everything a run depends on, besides the code.

    ``tcp`` is the share of the larger flows that hosts carry with their kernels' TCP; ``load`` is a
    share of the hosts' line rate; ``alpha`` packets, ``beta`` and ``delta`` flows and ``eta``
    packets steer Canary's flow selection (section III-D); ``noise`` is the loss rate of healthy
    links, or the range it is drawn from for each (`testbed.faults.noise`). ``topology`` and
    ``telemetry`` (`testbed.fabric.topologies`, `analysis.telemetry.flow_observations`) are for
    ``backend`` ``flow``; the others have fat-trees and ``A1+P``.
    """

    k: int = 4
    faults: str = "10pct"
    seed: int = 1
    epochs: int = 10
    epoch_ms: int = 100
    traffic: str = "hadoop"
    tcp: float = 0.0
    load: float = 0.6
    monitors: Monitors = "tor+core"
    alpha: int = 1000
    beta: int = 20
    delta: int = 20
    eta: int = 16
    noise: str = "0"
    backend: str = "virtual"
    injector: str = "auto"
    topology: str = "fat-tree"
    telemetry: str = "A1+P"

    def __post_init__(self) -> None:
        FatTree(self.k)
        self._bounds("epochs", 1, 1000)
        self._bounds("epoch_ms", 20, 60_000)
        self._bounds("seed", 0, 2**32 - 1)
        self._bounds("tcp", 0.0, 1.0)
        self._bounds("load", 0.001, 1.0)
        self._bounds("alpha", 0, 10**9)
        self._bounds("beta", 0, 4096)
        self._bounds("delta", 1, 4096)
        self._bounds("eta", 0, 2**31)
        noise_range(self.noise)
        if self.monitors not in ("tor", "tor+core"):
            raise SettingsError(f"MONITORS={self.monitors} is unknown: use tor or tor+core")
        if self.backend not in LINE_RATE:
            known = ", ".join(LINE_RATE)
            raise SettingsError(f"BACKEND={self.backend} is unknown: use {known}, or auto")
        if self.injector not in ("auto", "p4", "netem", "nft"):
            raise SettingsError(f"INJECTOR={self.injector} is unknown: use p4, netem, nft or auto")
        if self.injector != "auto" and self.backend == "flow":
            raise SettingsError(f"INJECTOR={self.injector} needs packets: leave it out")
        if self.injector in ("netem", "nft") and self.backend == "virtual":
            raise SettingsError(
                f"INJECTOR={self.injector} needs real links: use INJECTOR=p4, or another BACKEND"
            )

        if self.backend != "flow":
            check_tables(self.k, self.monitors, selects=self.alpha > 0 or self.beta > 0)
        if self.tcp and not self.real_time:
            raise SettingsError(f"TCP={self.tcp:g} needs real hosts: use TCP=0, or another BACKEND")
        kinds = self.telemetry.split("+")
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(KINDS):
            raise SettingsError(
                f"TELEMETRY={self.telemetry} is unknown: use {', '.join(KINDS)}, joined by +"
            )
        for name in ("topology", "telemetry"):
            value = getattr(self, name)
            if self.backend != "flow" and value != getattr(Settings, name):
                raise SettingsError(f"{name.upper()}={value} needs BACKEND=flow")

    def _bounds(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise SettingsError(f"{name.upper()}={value} is out of range: use {low} to {high}")

    @property
    def line_rate_bps(self) -> float:
        """What the hosts' links carry: what the backend's switches can process."""
        return LINE_RATE[self.backend]

    @property
    def real_time(self) -> bool:
        """Whether the backend's clock is the wall's."""
        return self.backend in REAL_TIME_DEFAULTS

    @property
    def epoch_ns(self) -> int:
        return self.epoch_ms * 1_000_000

    @property
    def duration_s(self) -> float:
        return self.epochs * self.epoch_ms / 1000

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


def make_settings(given: Mapping[str, Any]) -> Settings:
    """The settings of a run: what is given, for the rest the backend's defaults."""
    defaults = (REAL_TIME_DEFAULTS | {"flow": FLOW_DEFAULTS}).get(given.get("backend", ""), {})
    return Settings(**(defaults | dict(given)))
