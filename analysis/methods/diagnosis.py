# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of a method: the links that it blames, and estimates for all links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.telemetry.identifiability import Identifiability
from testbed.arrays import FloatArray, IntArray

UNRANKED = "all links have the same score, so they have no ranking: give score or success"
"""The remark on a diagnosis whose method gives no scores."""
UNSEEN = "not observed"
STATES = ("healthy", "faulty", UNSEEN)
"""The states that a diagnosis may give a link. A link that no observation crossed is *not observed*
unless the method blames it, as it may blame all links of a failed device."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of a method: the links that it blames, and estimates for all links.

    Attributes:
        method: The method's name in `analysis.methods.registry.METHODS`.
        native: Whether the method tells the two directions of a link apart. An undirected diagnosis
            lists both directions.
        flagged: Ids of the blamed directed links, ascending, int32[]. Links that the telemetry
            cannot tell apart are all blamed or all not.
        success: Estimated success probability of each link, float64[n_links], nan = no estimate.
        score: Suspicion of each link, higher = more suspicious, float64[n_links]; ranks the links.
        seconds: Processor seconds of the inference, of all threads, without the compilation of
            kernels.
        stages: The links blamed up to each stage, int32[] each; empty for methods without stages.
        connection_cause: For 007, the link that caused each connection's drops, or -1 for noise;
            int32[C].
        devices: Ids of the blamed switches, ascending, int32[].
        remarks: Limits of this diagnosis, as sentences for the user.
        tells: Which links the method's telemetry observes and tells apart; None until
            `with_classes` has added it.
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
    remarks: tuple[str, ...] = ()
    tells: Identifiability | None = None

    @property
    def equivalent(self) -> IntArray | None:
        """Return the class of each link, int32[n_links]: equal for links that no observation tells
        apart. None if ``tells`` is None."""
        return None if self.tells is None else self.tells.classes

    @property
    def ties(self) -> list[list[int]]:
        """Return the blamed classes that hold several links, as lists of ids; an undirected link is
        listed by the even id of its two directions."""
        if self.tells is None:
            return []
        both = self.native == "undirected"
        tells = self.tells.undirected if both else self.tells
        blamed = np.unique(self.flagged >> 1) if both else self.flagged
        blamed = blamed[tells.size[blamed] > 1]
        class_of = tells.classes[blamed]
        found = [blamed[class_of == each] for each in np.unique(class_of).tolist()]
        return [(each << both).tolist() for each in found if len(each) > 1]

    @property
    def state(self) -> list[str]:
        """Return the state of each directed link, one of `STATES`, in the order of the ids."""
        state = np.zeros(len(self.score), np.int8)
        if self.tells is not None:
            state[~self.tells.observed] = 2
        state[self.flagged] = 1
        return [STATES[each] for each in state.tolist()]


def sorted_links(links: npt.ArrayLike) -> IntArray:
    """Return directed link ids in ascending order, each once: int32[]."""
    return np.unique(np.asarray(links, np.int64)).astype(np.int32)


def both_directions(edges: npt.ArrayLike) -> IntArray:
    """Return the ids of both directions of each undirected link (id >> 1), ascending: int32[]."""
    edge = np.unique(np.asarray(edges, np.int64))
    return np.stack((2 * edge, 2 * edge + 1), axis=1).reshape(-1).astype(np.int32)
