# SPDX-License-Identifier: Apache-2.0
"""Flock's search for the most likely hypothesis, which keeps the gain of every flip up to date."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from analysis.methods.flock.likelihood import (
    BETTER,
    Room,
    State,
    accumulate,
    flip,
    likelihood,
    place,
    turn,
)
from analysis.methods.flock.model import FlockModel
from analysis.telemetry.identifiability import Identifiability
from testbed.arrays import BoolArray, FloatArray
from testbed.fabric.paths import Paths, PathSets
from testbed.kernels import Bound, Kernels

KERNELS = Kernels.beside(__file__)

MANY_PAIRS = 100_000
"""The number of ToR pairs, that of K=26, from which on a trial flip of every link is too slow."""

MANY_TRIED = 1_000_000
"""The same limit for pairs times links that are blamed without them: 61 links at K=16."""


KNOWN = 0.9
"""The share of these links whose direction traces must determine, as bouncing probes do not."""


class Search:
    """A hypothesis over a model's components.

    Args:
        model: The model to search.
        failed: The first hypothesis, bool[n_components]; default: no failure.
        compare: Whether to compute delta. This takes long, and `turn` does not need it.

    Attributes:
        failed: The hypothesis, bool[n_components].
        state: What the kernels work on; ``bound`` is the same in their form.
        remarks: What the user of its outcome should know.
        alone: What the listed groups blame alone, if they were asked, bool[n_components].
    """

    remarks: tuple[str, ...] = ()
    alone: BoolArray | None = None

    def __init__(
        self, model: FlockModel, failed: BoolArray | None = None, *, compare: bool = True
    ) -> None:
        self.model = model
        listed, pairs = model.listed, model.pairs
        self.state = state = State.of(
            listed._replace(failures=listed.failures.copy(), bad=listed.bad.copy()),
            pairs._replace(
                failures=pairs.failures.copy(),
                good=pairs.good.copy(),
                single=pairs.single.copy(),
                ways=pairs.ways.copy(),
                bad=pairs.bad.copy(),
                counted=pairs.counted.copy(),
                usual=pairs.usual.copy(),
                numbers=pairs.numbers.copy(),
                n_numbers=pairs.n_numbers.copy(),
            ),
            model.prior,
        )
        self.bound = state.bound()
        self.failed, self._delta, self._posterior = state.failed, state.delta, state.posterior
        if failed is not None:
            place(np.flatnonzero(failed), self.bound)
            self._posterior[0] = likelihood(self.bound) + model.prior[failed].sum()
        if compare:
            self._delta[:] = accumulate(state.listed, state.pairs, self.failed)

    def posterior_gain(self) -> FloatArray:
        """Return the change of the log posterior in nats if each component is flipped:
        float64[n_components]."""
        return self._delta + np.where(self.failed, -1.0, 1.0) * self.model.prior

    def posterior(self) -> float:
        """Return the log posterior in nats, relative to the hypothesis that nothing failed."""
        return float(self._posterior[0])

    def flip(self, component: int) -> None:
        """Flip the component with this number, and update delta and the posterior, both in nats."""
        flip(component, self.bound)

    def move_to(self, hypothesis: BoolArray) -> None:
        """Flip components until the hypothesis is the given one, bool[n_components]."""
        for component in np.flatnonzero(self.failed != hypothesis):
            self.flip(int(component))

    def greedy(self, allowed: BoolArray, *, remove: bool = False) -> None:
        """Flip the allowed component with the highest gain, until none gains. Failed components are
        flipped back only with ``remove``. ``allowed`` is bool[n_components].

        Of components with equal gains, up to rounding, the first is flipped.
        """
        gains = _gains(allowed, remove=remove)
        while _flip_best(gains, self.bound) >= 0:
            pass  # Python handles an interrupt between two flips

    def run(self, *, refine: bool, devices: bool) -> BoolArray:
        """Search and return the best hypothesis found, bool[n_components].

        Args:
            refine: Start both from links alone and from all components, and remove components, too.
            devices: Whether switches may fail.
        """
        is_link = np.arange(len(self.failed)) < self.model.n_links
        everything = is_link | devices
        if not refine:
            self.greedy(everything)
            return self.failed.copy()
        self.greedy(is_link)
        self._settle(everything)
        best, value = self.failed.copy(), self.posterior()
        if devices:
            self.move_to(np.zeros_like(self.failed))
            self.greedy(everything)
            if self.posterior() > value + BETTER:
                self._settle(everything)
                best = self.failed.copy()
        self.move_to(best)
        return best

    def _settle(self, allowed: BoolArray) -> None:
        """Add and remove components while that gains, then try each failed component's release."""
        self.greedy(allowed, remove=True)
        # The delta of components whose trial failed; they are tried again only after it changes.
        tried = np.full(len(self.failed), np.nan)
        for _ in range(4):
            if not any([self._release(allowed, tried), self._blame_devices(allowed, tried)]):
                return

    def _release(self, allowed: BoolArray, tried: FloatArray) -> bool:
        """Try the release of each failed component, devices first, because a wrong device hides
        other errors. Return whether any release was better."""
        improved, gains = False, _gains(allowed, remove=True)
        component = len(self.failed)
        while (component := self._next_failed(component, tried)) >= 0:
            improved |= self._attempt(component, gains, tried)
        return improved

    def _blame_devices(self, allowed: BoolArray, tried: FloatArray) -> bool:
        """Try each device in place of its failed links. Return whether any was better."""
        model, improved, gains = self.model, False, _gains(allowed, remove=True)
        # A link adds nothing beside a failed device of its own, so its prior is saved.
        links = np.flatnonzero(self.failed[: len(model.ends)])
        saved = np.zeros(len(self.failed))
        np.subtract.at(saved, model.ends[links], model.prior[links, None])
        for device in np.flatnonzero((saved > 0) & allowed):
            gain = self._delta[device] + model.prior[device] + saved[device]
            if (
                gain > 0
                and not self.failed[device]
                and not _nearly_equal(tried[device], self._delta[device])
            ):
                improved |= self._attempt(int(device), gains, tried)
        return improved

    def _next_failed(self, component: int, tried: FloatArray) -> int:
        """Return the last failed component before this one whose delta has changed since its last
        trial; -1 if there is none."""
        return KERNELS.next_failed(component=component, tried=tried, state=self.bound)

    def _attempt(self, component: int, gains: Bound, tried: FloatArray) -> bool:
        """Flip a component, then others that gain, and undo all flips if the result is not better.

        The trial is given up as soon as the sum of all remaining gains cannot make it better.
        Return whether it was better.
        """
        tried[component] = self._delta[component]
        state, before, trail = self.bound, self.posterior(), [component]
        KERNELS.flip_among(component=component, gains=gains, state=state)
        while (pick := _flip_best(gains, state, but=component, before=before)) >= 0:
            trail.append(pick)
        better = self.posterior() > before + BETTER
        if not better:
            for flipped in reversed(trail):
                KERNELS.flip_among(component=flipped, gains=gains, state=state)
            self._posterior[0] = before
        KERNELS.make_stale(component=component, gains=gains, state=state)
        return better

    def turn(self) -> None:
        """Set each failed directed link to its most likely direction or directions, see `turn`."""
        state = self.state
        links = np.flatnonzero(self.failed[: self.model.n_links])
        turn(links, Room.of(state.pairs), self.bound)
        self._delta[:] = accumulate(state.listed, state.pairs, self.failed)

    def hope(self) -> float:
        """Return the log posterior plus all positive gains, in nats: an optimistic estimate of what
        further flips can reach."""
        return self.posterior() + float(np.maximum(self.posterior_gain(), 0).sum())

    def evidence(self) -> FloatArray:
        """Return the evidence in nats for each component's failure, with the rest of the hypothesis
        fixed: float64[n_components]."""
        return np.where(self.failed, -self.posterior_gain(), self.posterior_gain())


def search_model(
    model: FlockModel,
    *,
    refine: bool,
    devices: bool,
    least: float = -math.inf,
    alone: BoolArray | None = None,
) -> Search:
    """Return a search that has moved to the best hypothesis it found; see `Search.run`.

    With many pairs of ToRs, or where many links fail among them, the refined search uses the listed
    groups alone. From its result, all groups together choose the directions of links, then add and
    remove components; this is skipped if no log posterior of ``least`` can be expected.

    Args:
        model: The model to search.
        refine, devices: See `Search.run`.
        least: The log posterior, in nats, of a diagnosis that is known already.
        alone: The result of the search of the listed groups alone, if it is known already.
    """
    n = len(model.pairs.bad) if refine else 0
    found = _without_pairs(model, devices, n, alone)
    if found is None:
        search = Search(model)
        search.run(refine=refine, devices=devices)
        return search
    asked = least > -math.inf
    search = Search(model, found, compare=model.undirected or asked)
    search.alone = found
    search.remarks = (
        f"{n:,} pairs of ToRs, {int(found.sum()):,} components blamed: the search was refined "
        "only on probes and flows of known path",
    )
    if asked and search.hope() < least:
        return search
    if not model.undirected:
        search.turn()
    search.greedy((np.arange(model.n_components) < model.n_links) | devices, remove=True)
    return search


def _without_pairs(
    model: FlockModel, devices: bool, n: int, alone: BoolArray | None
) -> BoolArray | None:
    """Return the hypothesis of the listed groups alone, bool[n_components], or None if the model is
    small enough to search all groups."""
    if n <= MANY_PAIRS and n * model.n_links <= MANY_TRIED:
        return None
    listed = model.without_pairs()
    found = Search(listed).run(refine=True, devices=devices) if alone is None else alone
    if n > MANY_PAIRS:
        return found
    links = np.flatnonzero(found[: model.n_links])
    if n * len(links) <= MANY_TRIED:
        return None
    paths = Paths(listed.listed.path_ptr, listed.listed.components)
    sets = PathSets(listed.listed.group_ptr, paths)
    alike = Identifiability.of(model.n_components, [sets]).classes
    known = model.undirected or np.mean(alike[links] != alike[links ^ 1]) > KNOWN
    return found if known else None


def plain_greedy(model: FlockModel) -> tuple[BoolArray, float]:
    """Search greedily without JLE, for comparison (section 3.3): compute the likelihood of each
    neighbour again, from the groups of the flipped component.

    Only listed groups are supported. Return the hypothesis, bool[n_components], and its log
    posterior in nats.
    """
    if len(model.pairs.bad):
        raise ValueError("plain greedy search needs listed path sets")
    listed = model.listed._replace(
        failures=model.listed.failures.copy(), bad=model.listed.bad.copy()
    )
    failed = np.zeros(model.n_components, np.bool_)
    value = KERNELS.plain_greedy(
        listed=listed,
        failed=failed,
        prior=model.prior,
        gain=np.empty(len(failed)),
        better=BETTER,
    )
    return failed, value


class Gains(NamedTuple):
    """The change of the log posterior for each allowed flip, and the highest in each block.

    Attributes:
        gain: Change in nats for each component, float64[n_components]; -inf for a flip that is not
            allowed.
        most: The highest gain of each block, float64[blocks].
        stale: Blocks whose gains must be computed again, bool[blocks].
        allowed: Components that may be flipped, bool[n_components].
        remove: Whether failed components may be flipped back.
        better: Nats that a gain must exceed.
    """

    gain: FloatArray
    most: FloatArray
    stale: BoolArray
    allowed: BoolArray
    remove: bool
    better: float = BETTER

    @property
    def n_blocks(self) -> int:
        """Return the number of blocks."""
        return len(self.most)


def _gains(allowed: BoolArray, *, remove: bool) -> Bound:
    """Return `Gains` that are all stale; ``allowed``, bool[n_components], is kept, not copied."""
    n_blocks = KERNELS.gain_blocks(n_components=len(allowed))
    gains = Gains(
        gain=np.empty(len(allowed)),
        most=np.empty(n_blocks),
        stale=np.ones(n_blocks, np.bool_),
        allowed=allowed,
        remove=remove,
    )
    return KERNELS.bound("Gains", gains)


def _flip_best(gains: Bound, state: Bound, *, but: int = -1, before: float = -math.inf) -> int:
    """Flip the component with the highest gain, except for ``but``, and return it. Return -1 if
    none gains, or if not even the sum of all gains makes the log posterior higher than
    ``before``."""
    return KERNELS.flip_best(but=but, before=before, gains=gains, state=state)


def _nearly_equal(a: float, b: float) -> bool:
    """Return whether two values of delta are equal up to rounding."""
    return abs(a - b) <= 1e-7 * (1 + abs(b))
