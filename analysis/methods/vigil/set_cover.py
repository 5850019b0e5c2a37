"""The fewest links that explain every lossy connection: what 007 is compared with (section 5.3).

Three ways to find them: the binary program (3) and the integer program (4), solved by HiGHS, and
the greedy approximation of the binary program (appendix D) that MAX COVERAGE and Tomo are.

- **Partial traces.** Any link that a connection may have crossed explains its drops.
- **Noise.** The programs explain every drop; that noise accuses healthy links is the paper's
  objection to them, and no floor is added here.
- **The integer program in two steps.** The links with p > 0 of any solution of (4) cover every
  connection, and any cover makes a solution once each connection's packets are given to one of its
  links; so (4) needs as many links as (3). The first program is therefore solved for the links, and
  (4) for the packets of each among these: exact, and quicker by orders of magnitude than (4) with
  a binary variable that counts each p > 0. Where (4) leaves freedom, packets go to the links that
  most lossy connections cross, as in the code that the paper's authors released; and no link drops
  more packets than the connections that may have crossed it lost.
- **Cause.** A connection's cause is the chosen link it crossed, of several the one that explains
  most packets (integer), connections (binary) or newly explained connections (greedy).
- **Time.** Both programs are NP-hard. At the time limit the best cover found so far is taken, or
  the greedy one; `Cover.proven` is false then, and the methods warn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from analysis.methods.base import Diagnosis, Method
from analysis.methods.vigil.vigil import Ballot, ballot, connection_causes
from analysis.telemetry.telemetry import Connections
from testbed.arrays import IntArray, LongArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp_probabilities import EcmpProbabilities


@dataclass(frozen=True)
class Routing:
    """The routing matrix A of the lossy connections, over the links they may have crossed.

    ``matrix`` is sparse [C, L] of ones; ``links`` int32[L] names the columns, ascending; ``lost``
    int64[C] is c, the packets each connection lost. Every row has an entry.
    """

    matrix: sparse.csr_array
    links: IntArray
    lost: LongArray

    @classmethod
    def of(cls, votes: Ballot, lost: LongArray) -> Routing:
        """The voters of a ballot; ``lost`` int64[] counts the packets of every connection."""
        voters, row = np.unique(votes.voter, return_inverse=True)
        links, column = np.unique(votes.link, return_inverse=True)
        ones = np.ones(len(row))
        matrix = sparse.csr_array((ones, (row, column)), shape=(len(voters), len(links)))
        return cls(matrix, links.astype(np.int32), lost[voters])


@dataclass(frozen=True)
class Cover:
    """Links that explain all connections.

    Attributes:
        links: Ascending, int32[n].
        weight: int64[n]: the packets (integer program), connections (binary) or newly explained
            connections (greedy) attributed to each.
        proven: No cover has fewer links.
    """

    links: IntArray
    weight: LongArray
    proven: bool


def binary_program(routing: Routing, time_limit: float = 60.0) -> Cover:
    """Equation 3: the fewest links that cross every lossy connection, within seconds."""
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
    """Equation 4: the fewest links, and the packets each dropped, that explain all lost packets.

    ``time_limit`` holds for each of the two steps.
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
    """Algorithm 2: again and again the link that explains most connections not yet explained.

    Of several the one whose unexplained connections lost most packets, then the one that most
    connections may have crossed, then that whose connections lost most; links that are equal in
    that, too, are hardly ever not on the same connections: of these the lowest number. Takes time
    in proportion to links x links chosen.
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
        fresh = on[link][unexplained[on[link]]]
        unexplained[fresh] = False
        left -= np.asarray(rows[fresh].sum(axis=0), np.int64)
        lost -= np.asarray(rows[fresh].T @ routing.lost[fresh], np.int64)
    chosen = weight > 0
    return Cover(routing.links[chosen], weight[chosen], proven=False)


def _nothing() -> Cover:
    return Cover(np.zeros(0, np.int32), np.zeros(0, np.int64), proven=True)


class _FewestLinks(Method):
    """A method that blames the links of a cover."""

    paper = "007, 5.3 and appendix D"
    reads = "connections"

    def infer(self, connections: Connections, fabric: Fabric) -> Diagnosis:
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
        return max_coverage(routing)


class _Program(_FewestLinks):
    """One of the two programs; ``time_limit`` is in seconds."""

    def __init__(self, *, time_limit: float = 60.0) -> None:
        self.time_limit = time_limit

    def cover(self, routing: Routing) -> Cover:
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
    """The binary program (equation 3).

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
    """The integer program (equation 4).

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
