"""Flow-size distributions: published cumulative tables, and Flock's Pareto."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Workload = Literal["hadoop", "websearch", "storage", "pareto"]
WORKLOADS: tuple[Workload, ...] = ("hadoop", "websearch", "storage", "pareto")


class FlowSizes(Protocol):
    """Sizes of flows in payload bytes, at least 1."""

    @property
    def mean(self) -> float: ...

    def quantile(self, u: FloatArray) -> FloatArray:
        """The size that a share ``u`` of the flows does not exceed."""
        ...

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        """The same for the size of the flow that a random byte belongs to.

        A network observed at a random instant holds flows of this distribution.
        """
        ...


@dataclass(frozen=True)
class Table:
    """A cumulative distribution, linear between its points: float64[n] each."""

    size: FloatArray
    share: FloatArray

    @property
    def mean(self) -> float:
        return float(self._bytes.sum())

    @property
    def _bytes(self) -> FloatArray:
        return np.diff(self.share) * (self.size[1:] + self.size[:-1]) / 2

    def quantile(self, u: FloatArray) -> FloatArray:
        return np.maximum(np.interp(u, self.share, self.size), 1.0)

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        cumulative = np.concatenate(([0.0], np.cumsum(self._bytes)))
        cumulative /= cumulative[-1]
        # between two points the density grows with the size, so the square of the size is linear
        return np.maximum(_sqrt_interp(u, cumulative, self.size), 1.0)


@dataclass(frozen=True)
class Pareto:
    """Pareto of a given mean; most of the bytes are in flows longer than any run."""

    mean: float = 200e3
    shape: float = 1.05

    @property
    def _scale(self) -> float:
        return self.mean * (self.shape - 1) / self.shape

    def quantile(self, u: FloatArray) -> FloatArray:
        return self._scale * (1 - u) ** (-1 / self.shape)

    def quantile_by_bytes(self, u: FloatArray) -> FloatArray:
        log = np.log(self._scale) - np.log1p(-u) / (self.shape - 1)
        return np.exp(np.minimum(log, 60.0))  # e^60 bytes outlast everything and do not overflow


def flow_sizes(workload: Workload) -> FlowSizes:
    """The distribution of a workload.

    ``hadoop`` (Facebook), ``websearch`` (DCTCP) and ``storage`` (Alibaba) are tables in ``data/``,
    which name their sources; ``pareto`` is Flock's (its section 6.3: mean 200 KB, shape 1.05).
    """
    if workload == "pareto":
        return Pareto()
    text = resources.files("testbed.traffic").joinpath("data", f"{workload}.txt").read_text()
    size, percent = np.loadtxt(text.splitlines(), unpack=True)
    return Table(size, percent / 100)


def _sqrt_interp(u: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    return np.sqrt(np.interp(u, x, y**2))
