"""What breaks: the faults of links, the truth that a run is judged by."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import yaml

from testbed.fabric.clos import Fabric

__all__ = ["MATCH_BITS", "Fault", "FaultError", "FaultPlan", "FlowMatch", "Kind", "Ternary"]

Kind = Literal["drop", "blackhole", "corrupt"]

MATCH_BITS = {"src_ip": 32, "dst_ip": 32, "src_port": 16, "dst_port": 16, "protocol": 8}


class FaultError(ValueError):
    """FAULTS cannot be understood, or asks for what the topology does not have. One line."""


@dataclass(frozen=True)
class Ternary:
    """Matches x with ``x & mask == value``; no bit of ``value`` lies outside ``mask``."""

    value: int
    mask: int


@dataclass(frozen=True)
class FlowMatch:
    """The flows that a fault hits; a field that is None matches everything."""

    src_ip: Ternary | None = None
    dst_ip: Ternary | None = None
    src_port: Ternary | None = None
    dst_port: Ternary | None = None
    protocol: Ternary | None = None


@dataclass(frozen=True)
class Fault:
    """A fault of a directed fabric link.

    Attributes:
        link: Directed link id.
        rate: The share of the matching packets that is lost, in (0, 1]; 1 for a black hole.
        kind: ``drop`` at random, ``blackhole`` for every packet, or ``corrupt``: the next switch
            discards the packet.
        match: The flows it hits, or None for all.
        schedule: Disjoint ascending (start, end) in seconds; empty for always.
    """

    link: int
    rate: float
    kind: Kind = "drop"
    match: FlowMatch | None = None
    schedule: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class FaultPlan:
    """The truth: all faults, ascending by link, and the switches that failed as a whole."""

    faults: tuple[Fault, ...] = ()
    devices: tuple[int, ...] = ()

    @property
    def links(self) -> npt.NDArray[np.int32]:
        """The faulty directed links, sorted and unique."""
        return np.unique(np.array([fault.link for fault in self.faults], np.int32))

    def to_records(self) -> list[dict[str, Any]]:
        """One plain dictionary a fault: ``link`` (id), ``rate``, ``kind``, ``match``, ``schedule``.

        ``match`` is None or maps a field to ``"value/mask"``; ``schedule`` is a list of pairs.
        """
        return [
            {
                "link": fault.link,
                "rate": fault.rate,
                "kind": fault.kind,
                "match": None if fault.match is None else _match_text(fault.match),
                "schedule": [list(span) for span in fault.schedule],
            }
            for fault in self.faults
        ]

    def to_yaml(self, topology: Fabric) -> str:
        """A fault file that `specification.parse_faults` reads as this very plan, for any seed."""
        entries = []
        for record in self.to_records():
            record["link"] = topology.link_names[record["link"]]
            entries.append({key: value for key, value in record.items() if value})
        devices = [topology.switch_names[device] for device in self.devices]
        return yaml.safe_dump({"faults": entries, "failed_devices": devices}, sort_keys=False)


def _match_text(match: FlowMatch) -> dict[str, str]:
    text = {}
    for field, bits in MATCH_BITS.items():
        ternary: Ternary | None = getattr(match, field)
        if ternary is None:
            continue
        if bits == 32:
            value, mask = (ipaddress.IPv4Address(n) for n in (ternary.value, ternary.mask))
            text[field] = f"{value}/{mask}"
        else:
            text[field] = f"{ternary.value:#x}/{ternary.mask:#x}"
    return text
