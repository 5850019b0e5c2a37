"""What TRAFFIC means: a flow-size distribution, or a capture to replay."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import cast

from scenarios.experiment.settings import Settings, SettingsError
from testbed.fabric.addressed import AddressedFabric
from testbed.fabric.names import plain
from testbed.traffic.capture import BEYOND
from testbed.traffic.distributions import WORKLOADS, Workload
from testbed.traffic.flows import Traffic
from testbed.traffic.generator import Pattern, generate
from testbed.traffic.replay import Account, replay

log = logging.getLogger(__name__)

_CAPTURES = (".pcap", ".pcapng", ".cap", ".pcap.gz", ".pcapng.gz", ".cap.gz")


def capture_file(traffic: str) -> Path | None:
    """The capture that ``traffic`` names, None if it names none."""
    name = traffic.removesuffix(":fit")
    return Path(name) if name.lower().endswith(_CAPTURES) else None


def workload(traffic: str) -> tuple[Workload, Pattern] | None:
    """Return the workload that ``traffic`` names and who sends to whom, None if it names none."""
    name, _, option = traffic.partition(":")
    if name not in WORKLOADS or option not in ("", "uniform", "skewed"):
        return None
    return cast(Workload, name), "skewed" if option == "skewed" else "uniform"


def make_traffic(
    settings: Settings,
    topology: AddressedFabric,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Traffic, Account | None]:
    """Generate or replay the traffic of a run; what became of a capture's frames, if one is.

    ``traffic`` is ``hadoop``, ``websearch``, ``storage`` or ``pareto``, with ``:skewed`` for half
    of the traffic among 5 % of the racks; or a capture file, with ``:fit`` to stretch or squeeze
    its timing to the run's duration instead of cutting it off there. A warning is logged if that
    cuts packets off.

    Args:
        settings: Those of the run.
        topology: Its fabric.
        progress: Receives the share of a capture that was read, from 0 to 1.

    Raises:
        ValueError: It is neither, or the capture is unreadable (one line).
    """
    path = capture_file(settings.traffic)
    if path is not None:
        fit = settings.traffic.endswith(":fit")
        traffic, account = replay(path, topology, settings.seed, settings.duration_s, fit, progress)
        _warn_of_what_is_cut_off(settings, account)
        return traffic, account
    named = workload(settings.traffic)
    if named is None:
        raise SettingsError(
            f"TRAFFIC={settings.traffic} is unknown: use {', '.join(WORKLOADS)} (with :skewed), "
            "or a .pcap or .pcapng file, also .gz (with :fit)"
        )
    kind, pattern = named
    traffic = generate(
        topology,
        kind,
        settings.load,
        settings.duration_s,
        settings.seed,
        pattern,
        settings.line_rate_bps,
    )
    return traffic, None


def _warn_of_what_is_cut_off(settings: Settings, account: Account) -> None:
    if account.fit or (account.share == 1.0 and BEYOND not in account.refused):
        return
    if account.share == 1.0:
        of = f"{account.frames:,} frames in {account.seconds:.3g} s"
    else:
        of = f"all, for which {100 * account.share:.2g} % of the file were read"
    log.warning(
        "capture %s is longer than the run of %g s: %s of %s are replayed; "
        "TRAFFIC=%s:fit squeezes it into the run, more EPOCHS or a longer EPOCH_MS replay more",
        plain(account.file),
        settings.duration_s,
        f"{account.replayed:,}",
        of,
        plain(settings.traffic),
    )
