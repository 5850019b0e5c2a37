"""Flow-size distributions: published cumulative tables, and Flock's Pareto."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from testbed.arrays import FloatArray
from testbed.errors import UserError
from testbed.traffic.size_table import read_sizes

Workload = Literal["hadoop", "websearch", "storage", "pareto"]
WORKLOADS: tuple[Workload, ...] = ("hadoop", "websearch", "storage", "pareto")


class FlowSizes(Protocol):
    """Sizes of flows in payload bytes, at least 1."""

    @property
    def mean(self) -> float:
        """Return the mean flow size in bytes."""
        ...

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the size in bytes that a share ``u`` of the flows does not exceed, float64[n]."""
        ...

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        """Return the same quantile, weighted by bytes: of the flow that a random byte belongs to.

        A network observed at a random instant holds flows of this distribution.
        """
        ...


@dataclass(frozen=True)
class Pareto:
    """The Pareto distribution with a given mean in bytes; most bytes are in very long flows."""

    mean: float = 200e3
    shape: float = 1.05

    @property
    def _scale(self) -> float:
        return self.mean * (self.shape - 1) / self.shape

    def quantile(self, u: FloatArray) -> FloatArray:
        """Return the size in bytes that a share ``u`` of the flows does not exceed."""
        return self._scale * (1 - u) ** (-1 / self.shape)

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        """Return the same quantile, weighted by the bytes of the flows."""
        log = np.log(self._scale) - np.log1p(-u) / (self.shape - 1)
        return np.exp(np.minimum(log, 60.0))  # e^60 bytes outlast everything and do not overflow


def flow_sizes(workload: str) -> FlowSizes:
    """Return the flow-size distribution of a workload or of a ``.txt`` file.

    ``hadoop`` (Facebook), ``websearch`` (DCTCP) and ``storage`` (Alibaba) are tables in ``data/``,
    which name their sources; ``pareto`` is Flock's (its section 6.3: mean 200 KB, shape 1.05).

    Raises:
        UserError: It is neither, or the file is no table of flow sizes.
    """
    if workload == "pareto":
        return Pareto()
    if workload in WORKLOADS:
        with resources.as_file(
            resources.files("testbed.traffic") / "data" / f"{workload}.txt"
        ) as path:
            return read_sizes(path)
    if workload.lower().endswith(".txt"):
        return read_sizes(Path(workload))
    raise UserError(
        f"TRAFFIC={workload} is unknown: use {', '.join(WORKLOADS)}, or a .txt file of sizes"
    )
