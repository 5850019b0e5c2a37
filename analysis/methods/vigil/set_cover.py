# SPDX-License-Identifier: Apache-2.0
"""The fewest links that explain every lossy connection, with which 007 is compared (section 5.3).

There are three ways to find them: the binary program (equation 3) and the integer program (equation
4), both solved by HiGHS, and the greedy approximation of the binary program (appendix D), which is
known as MAX COVERAGE and Tomo.

- **Partial traces.** Any link that a connection may have crossed can explain its drops.
- **Noise.** The programs explain every drop, so noise accuses healthy links. This is the paper's
  objection to them; no threshold is added here.
- **The integer program in two steps.** The links with p > 0 of any solution of (4) cover every
  connection, and any cover makes a solution once each connection's packets are given to one of its
  links; so (4) needs as many links as (3). The first program is therefore solved for the links, and
  (4) for the packets of each among these: exact, and quicker by orders of magnitude than (4) with
  a binary variable that counts each p > 0. Where (4) leaves freedom, packets go to the links that
  most lossy connections cross, as in the code that the paper's authors released; and no link drops
  more packets than the connections that may have crossed it lost.
- **Cause.** A connection's cause is the chosen link that it crossed, and of several the one that
  explains most packets (integer), connections (binary) or newly explained connections (greedy).
- **Time.** Both programs are NP-hard. At the time limit the result is the best cover found so far,
  or the greedy one; `Cover.proven` is then False, and the methods issue a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from analysis.methods.base import Method
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.domain import SPRAYED_TRACES
from analysis.methods.vigil.vigil import Ballot, ballot, connection_causes
from analysis.telemetry.telemetry import Connections
from testbed.arrays import IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp_probabilities import EcmpProbabilities


@dataclass(frozen=True)
class Routing:
    """The routing matrix A of the C lossy connections, over the L links they may have crossed.

    Attributes:
        matrix: A, sparse [C, L]: 1 where the connection may have crossed the link. Every row has an
            entry.
        links: The id of the link of each column, ascending, int32[L].
        lost: c, the packets that each connection lost, int64[C].
    """

    matrix: sparse.csr_array
    links: IntArray
    lost: LongArray

    @classmethod
    def of(cls, votes: Ballot, lost: LongArray) -> Routing:
        """Return the routing matrix of the voters of a ballot.

        ``lost``, int64[n_connections], has the lost packets of every connection.
        """
        voters, row = np.unique(votes.voter, return_inverse=True)
        links, column = np.unique(votes.link, return_inverse=True)
        ones = np.ones(len(row))
        matrix = sparse.csr_array((ones, (row, column)), shape=(len(voters), len(links)))
        return cls(matrix, links.astype(np.int32), lost[voters])


@dataclass(frozen=True)
class Cover:
    """Links that explain all lossy connections.

    Attributes:
        links: Ids of the links, ascending, int32[n].
        weight: What is attributed to each link, int64[n]: packets (integer program), connections
            (binary) or newly explained connections (greedy).
        proven: Whether the solver proved that no cover has fewer links.
    """

    links: IntArray
    weight: LongArray
    proven: bool


def binary_program(routing: Routing, time_limit: float = 60.0) -> Cover:
    """Return the fewest links that every lossy connection crosses one of (007, equation 3).

    After ``time_limit`` seconds the best cover found so far is returned.
    """
    from scipy.optimize import Bounds, milp  # takes long to load, and few runs need it

    n_links = len(routing.links)
    if not n_links:
        return _nothing()
    solution = milp(
        np.ones(n_links),
        integrality=np.ones(n_links),
        bounds=Bounds(0, 1),
        constraints=(sparse.csc_array(routing.matrix), 1, np.inf),
        options={"time_limit": time_limit},
    )
    if solution.x is None:
        return max_coverage(routing)
    chosen = solution.x > 0.5
    weight = np.asarray(routing.matrix.sum(axis=0))[chosen].astype(np.int64)
    return Cover(routing.links[chosen], weight, solution.status == 0)


def integer_program(routing: Routing, time_limit: float = 60.0) -> Cover:
    """Return the fewest links that explain all lost packets, and the packets that each dropped
    (007, equation 4).

    ``time_limit``, in seconds, holds for each of the two steps.
    """
    from scipy.optimize import Bounds, milp  # as above

    cover = binary_program(routing, time_limit)
    if not len(cover.links):
        return cover
    column = np.searchsorted(routing.links, cover.links)
    matrix = sparse.csc_array(routing.matrix)[:, column]
    lost = routing.lost.astype(np.float64)
    solution = milp(
        -np.asarray(matrix.sum(axis=0), np.float64),
        integrality=np.ones(len(column)),
        bounds=Bounds(0, matrix.T @ lost),
        constraints=[(matrix, lost, np.inf), (np.ones((1, len(column))), lost.sum(), lost.sum())],
        options={"time_limit": time_limit},
    )
    if solution.x is None:
        return cover
    packets = np.round(solution.x).astype(np.int64)
    chosen = packets > 0
    return Cover(cover.links[chosen], packets[chosen], cover.proven and solution.status == 0)


def max_coverage(routing: Routing) -> Cover:
    """Return a cover that is chosen greedily (007, algorithm 2): the link that explains most
    connections which are not explained yet, until all are explained.

    Of several such links the one is chosen whose unexplained connections lost most packets, then
    the one that most connections may have crossed, then the one whose connections lost most. Links
    that are equal in this, too, are nearly always on the same connections; of these the one with
    the lowest id is chosen. The time grows with the number of links times that of chosen links.
    """
    rows, columns = routing.matrix, sparse.csc_array(routing.matrix)
    on = np.split(columns.indices, columns.indptr[1:-1])
    left = np.diff(columns.indptr).astype(np.int64)
    every, packets = left.copy(), columns.T @ routing.lost
    lost = packets.copy()
    unexplained = np.ones(len(routing.lost), np.bool_)
    weight = np.zeros_like(left)
    while len(left) and left.max() > 0:
        most = np.flatnonzero(left == left.max())
        order = np.lexsort((most, -packets[most], -every[most], -lost[most]))
        link = int(most[order[0]])
        weight[link] = left[link]
        newly_explained = on[link][unexplained[on[link]]]
        unexplained[newly_explained] = False
        left -= np.asarray(rows[newly_explained].sum(axis=0), np.int64)
        lost -= np.asarray(rows[newly_explained].T @ routing.lost[newly_explained], np.int64)
    chosen = weight > 0
    return Cover(routing.links[chosen], weight[chosen], proven=False)


def _nothing() -> Cover:
    return Cover(np.zeros(0, np.int32), np.zeros(0, np.int64), proven=True)


class _FewestLinks(Method):
    """The base class of the methods that blame the links of a cover."""

    paper = "007, 5.3 and appendix D"
    reads = "connections"
    sprayed = SPRAYED_TRACES

    def infer(self, connections: Connections, fabric: Fabric) -> Diagnosis:
        """Return the links of the cover, scored by their weight, and each connection's cause."""
        n_links = fabric.n_links
        votes = ballot(connections, EcmpProbabilities(fabric))
        cover = self.cover(Routing.of(votes, connections.lost))
        rank = np.full(n_links, len(cover.links), np.int64)
        rank[cover.links[np.argsort(-cover.weight, kind="stable")]] = np.arange(len(cover.links))
        score = np.zeros(n_links)
        score[cover.links] = cover.weight
        return self.diagnosis(
            fabric,
            cover.links,
            score=score,
            connection_cause=connection_causes(votes, rank, len(cover.links), len(connections)),
        )

    def cover(self, routing: Routing) -> Cover:
        """Return the links that explain all lossy connections; subclasses choose how."""
        raise NotImplementedError


class MaxCoverage(_FewestLinks):
    """MAX COVERAGE and Tomo: the greedy approximation of the binary program (appendix D).

    Two connections that lost packets share one link:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Connections, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> traced = Connections(
    ...     src_tor=np.array([0, 2]),
    ...     dst_tor=np.array([1, 1]),
    ...     lost=np.array([5, 3]),
    ...     paths=fabric.paths_over("leaf0->spine0->leaf1", "leaf2->spine0->leaf1"),
    ...     complete=np.array([True, True]),
    ...     traceroute_packets=4,
    ... )
    >>> verdict = MaxCoverage().localize(Telemetry(fabric, "none", connections=traced))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "max-coverage"

    def cover(self, routing: Routing) -> Cover:
        """Return the greedy cover of the lossy connections, see `max_coverage`."""
        return max_coverage(routing)


class _Program(_FewestLinks):
    """The base class of the two programs. ``time_limit`` is the solver's limit in seconds."""

    def __init__(self, *, time_limit: float = 60.0) -> None:
        self.time_limit = time_limit

    def cover(self, routing: Routing) -> Cover:
        """Return the cover that the solver found, with a RuntimeWarning if it was stopped early."""
        found = self.solve(routing, self.time_limit)
        if not found.proven:
            warnings.warn(
                f"{self.name}: stopped after {self.time_limit:g} s with {len(found.links)} links, "
                "which may not be the fewest",
                RuntimeWarning,
                stacklevel=3,
            )
        return found

    solve: Callable[[Routing, float], Cover]


class BinaryProgram(_Program):
    """Blame the fewest links that every lossy connection crosses one of (007, equation 3).

    Two connections that lost packets share one link:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Connections, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> traced = Connections(
    ...     src_tor=np.array([0, 2]),
    ...     dst_tor=np.array([1, 1]),
    ...     lost=np.array([5, 3]),
    ...     paths=fabric.paths_over("leaf0->spine0->leaf1", "leaf2->spine0->leaf1"),
    ...     complete=np.array([True, True]),
    ...     traceroute_packets=4,
    ... )
    >>> verdict = BinaryProgram().localize(Telemetry(fabric, "none", connections=traced))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "007-binary"
    solve = staticmethod(binary_program)


class IntegerProgram(_Program):
    """Blame the fewest links that explain all lost packets (007, equation 4).

    Two connections that lost packets share one link:

    >>> import numpy as np
    >>> from analysis.telemetry.telemetry import Connections, Telemetry
    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = leaf_spine(3, 1)
    >>> traced = Connections(
    ...     src_tor=np.array([0, 2]),
    ...     dst_tor=np.array([1, 1]),
    ...     lost=np.array([5, 3]),
    ...     paths=fabric.paths_over("leaf0->spine0->leaf1", "leaf2->spine0->leaf1"),
    ...     complete=np.array([True, True]),
    ...     traceroute_packets=4,
    ... )
    >>> verdict = IntegerProgram().localize(Telemetry(fabric, "none", connections=traced))
    >>> [fabric.link_names[link] for link in verdict.flagged]
    ['spine0->leaf1']
    """

    base = "007-integer"
    solve = staticmethod(integer_program)
