# SPDX-License-Identifier: Apache-2.0
"""The fabric of a run: one that TOPOLOGY describes by a word, or one from anybody's file.

A file is the project's table of links, or one of the formats of fabrics that `canary import` reads,
by the end of its name.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from analysis.importers.tables import Imported, read_topology
from scenarios.experiment.settings import Settings, SettingsError
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.names import shortened
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.topologies import is_described, make_fabric, make_packet_fabric, unknown

HOSTS = 2
"""Hosts at each ToR of a file that has none."""


def topology_file(topology: str) -> Path | None:
    """Return the file or folder that a value of TOPOLOGY names; None if it describes a fabric."""
    return None if is_described(topology) else Path(topology)


def fabric_of(settings: Settings) -> Fabric:
    """Return the fabric of these settings; with packets it is a `PacketFabric`.

    Raises:
        ValueError: It cannot be made or read, or packets cannot flow through it (one line).
    """
    if topology_file(settings.topology) is None:
        if settings.network.sends_packets:
            return make_packet_fabric(settings.topology, settings.k, settings.seed)
        return make_fabric(settings.topology, settings.k, settings.seed)
    fabric = _from_file(settings.topology, settings.tier0, settings.hosts)
    return PacketFabric.of(fabric) if settings.network.sends_packets else fabric


def _from_file(topology: str, tier0: str, hosts: int) -> Fabric:
    """Return the fabric of a file.

    Raises:
        SettingsError: There is no such file, or it is no fabric (one line).
    """
    path = Path(topology)
    try:
        found = path.stat()
    except (OSError, ValueError):
        if path.suffix or len(path.parts) > 1:
            raise SettingsError(f"TOPOLOGY={topology}: there is no such file") from None
        raise unknown(topology) from None
    try:
        imported = _read(path, found.st_mtime_ns, found.st_size, tier0)
    except UserError as error:
        raise SettingsError(f"TOPOLOGY: {shortened(str(error))}") from None
    fabric = imported.numbered.fabric
    of_racks: dict[str, int] = {}
    for tor in imported.places.get("hosts", {}).values():
        of_racks[tor] = of_racks.get(tor, 0) + 1
    rack = hosts or max(of_racks.values(), default=HOSTS)
    above = np.bincount(fabric.tier)[1:].tolist()
    of = f"{rack} host{'s' if rack > 1 else ''}"
    counts = f"{fabric.n_tors} ToRs of {of}, {' and '.join(map(str, above))} switches above"
    return Fabric(
        fabric.switch_names,
        fabric.tier,
        fabric.link_src[::2],
        fabric.link_dst[::2],
        hosts_per_tor=rack,
        title=f"the fabric of {path.name} ({counts})",
    )


@lru_cache(maxsize=4)
def _read(path: Path, mtime_ns: int, size: int, tier0: str) -> Imported:
    """Return what is in a file, which a run asks for several times."""
    return read_topology(path, None if tier0 == "auto" else tier0)
