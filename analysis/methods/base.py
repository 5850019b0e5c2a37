"""A method's verdict, and the one face every method wears."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from analysis.telemetry.telemetry import Telemetry

__all__ = ["Diagnosis", "Localizer", "both_directions", "sorted_links"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Diagnosis:
    """Which links a method blames, and what it thinks of the others.

    Attributes:
        method: The method's name in `analysis.methods.registry.METHODS`.
        native: Whether the method tells the two directions of a link apart. An undirected verdict
            lists both.
        flagged: Blamed directed link ids, ascending, int32[].
        success: Estimated success probability of each link, float64[n_links], nan = no estimate.
        score: Ranking of each link, higher = more suspicious, float64[n_links].
        seconds: Wall-clock time of the inference.
        stages: The links blamed after each stage (cumulative), of a method that has stages.
        connection_cause: 007's verdict on each connection: a link id, or -1 for noise; int32[C].
        devices: Blamed switches, ascending, int32[].
        equivalent: Class number of each link, int32[n_links], of a method that says which links its
            telemetry cannot tell apart; None = all distinct.
    """

    method: str
    native: Literal["directed", "undirected"]
    flagged: IntArray
    success: FloatArray
    score: FloatArray
    seconds: float
    stages: tuple[IntArray, ...] = ()
    connection_cause: IntArray | None = None
    devices: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    equivalent: IntArray | None = None


class Localizer(Protocol):
    """A localization method: parameters in the constructor, data in one method."""

    @property
    def name(self) -> str: ...

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Blame links. Raises MissingTelemetry when a part the method reads was not measured."""
        ...

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Bytes of measurement records the method had to collect."""
        ...

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Packets sent only to measure."""
        ...


def sorted_links(links: npt.ArrayLike) -> IntArray:
    """Ascending, unique directed link ids as int32[]."""
    return np.unique(np.asarray(links, np.int64)).astype(np.int32)


def both_directions(edges: npt.ArrayLike) -> IntArray:
    """Both directed links of each undirected link (id >> 1), ascending."""
    edge = np.unique(np.asarray(edges, np.int64))
    return np.stack((2 * edge, 2 * edge + 1), axis=1).reshape(-1).astype(np.int32)
