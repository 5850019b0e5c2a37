"""What TRAFFIC means: a flow-size distribution, or a capture to replay."""

from __future__ import annotations

from pathlib import Path

from scenarios.settings import Settings, SettingsError
from testbed.fabric.fat_tree import FatTree
from testbed.traffic.capture import replay
from testbed.traffic.distributions import WORKLOADS
from testbed.traffic.flows import Traffic
from testbed.traffic.generator import generate

__all__ = ["capture_file", "make_traffic"]

_CAPTURES = (".pcap", ".pcapng", ".cap", ".pcap.gz", ".pcapng.gz", ".cap.gz")


def capture_file(traffic: str) -> Path | None:
    """The capture that ``traffic`` names, None if it names none."""
    kind = traffic.partition(":")[0]
    return Path(kind) if kind.lower().endswith(_CAPTURES) else None


def make_traffic(settings: Settings, topology: FatTree) -> Traffic:
    """Generate or replay the traffic of a run.

    ``traffic`` is ``hadoop``, ``websearch``, ``storage`` or ``pareto``, with ``:skewed`` for half
    of the traffic among 5 % of the racks; or a capture file, with ``:fit`` to stretch or squeeze
    its timing to the run's duration instead of cutting it off there.

    Raises:
        ValueError: It is neither, or the capture is unreadable (one line).
    """
    kind, _, option = settings.traffic.partition(":")
    if kind in WORKLOADS and option in ("", "uniform", "skewed"):
        pattern = "skewed" if option == "skewed" else "uniform"
        return generate(
            topology,
            kind,
            settings.load,
            settings.duration_s,
            settings.seed,
            pattern,
            settings.line_rate_bps,
        )
    path = capture_file(settings.traffic)
    if path is not None and option in ("", "fit"):
        return _replay(path, option == "fit", settings, topology)
    raise SettingsError(
        f"TRAFFIC={settings.traffic} is unknown: use {', '.join(WORKLOADS)} (with :skewed), "
        "or a .pcap or .pcapng file, also .gz (with :fit)"
    )


def _replay(path: Path, fit: bool, settings: Settings, topology: FatTree) -> Traffic:
    if not fit:
        return replay(path, topology, settings.seed, duration_s=settings.duration_s)
    whole = replay(path, topology, settings.seed)
    length = float(whole.time_ns[-1]) / 1e9
    scale = settings.duration_s / length if length else 1.0
    return replay(path, topology, settings.seed, time_scale=scale, duration_s=settings.duration_s)
