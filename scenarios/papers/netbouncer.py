# SPDX-License-Identifier: Apache-2.0
"""NetBouncer's figures 6 to 9: its variants, its solver, its parameter lambda, and other
methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from analysis.methods.base import Localizer
from analysis.methods.detector import Detector
from analysis.methods.kdd14 import Kdd14
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.netscope import NetScope
from analysis.solvers.coordinate_descent import coordinate_descent, stochastic_descent
from analysis.solvers.incidence import Incidence
from scenarios.papers.experiment import Effort, Row, Task, draw_groups, label
from scenarios.papers.netbouncer_network import QUANTITIES, Network, draw_truth, probe, scores

FN, FP, _ = QUANTITIES
SHARES = (0.001, 0.01, 0.1)
OURS = "NetBouncer"
DEFAULT = NetBouncer(penalty=1.0)
VARIANTS: Mapping[str, Localizer] = {
    OURS: DEFAULT,
    "NetBouncer+lucky": NetBouncer(penalty=1.0, lucky_share=0.001),
    "w/o DFD": NetBouncer(penalty=1.0, device_detection=False),
    "convex": NetBouncer(penalty=1.0, model="convex"),
    **{f"L1 (λ={weight:g})": NetBouncer(penalty=weight, model="l1") for weight in (0.5, 1.0, 2.0)},
}
RIVALS: Mapping[str, Localizer] = {
    OURS: DEFAULT,
    **{f"deTector ({hit:g})": Detector(hit_ratio=hit, noise=1e-5) for hit in (0.6, 0.9)},
    **{f"NetScope ({w:g})": NetScope(omega=w, link_threshold=0.999) for w in (0.1, 1.0, 10.0)},
    "KDD14": Kdd14(noise=0.001),
}


def by_share(
    work: Callable[[int, int, float], Sequence[Row]], shares: tuple[float, ...], effort: Effort
) -> Mapping[str, Task]:
    """Return tasks for each share of faulty links and 20 draws; draws share a network, which takes
    five seconds to make."""
    k = 8 if effort.small else 48
    return {
        f"{label(100 * share)}-{draws}": partial(_draws, work, some, k, share)
        for share in shares
        for draws, some in draw_groups(effort.draws).items()
    }


def _draws(
    work: Callable[[int, int, float], Sequence[Row]], draws: range, k: int, share: float
) -> list[Row]:
    """Return the rows of `work` for each of several draws."""
    return [row for draw in draws for row in work(draw, k, share)]


def figure_6(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 6, for each share of faulty links."""
    return by_share(variants, SHARES, effort)


def variants(draw: int, k: int, share: float) -> list[Row]:
    """Return the scores of NetBouncer's variants on one draw."""
    return scores(Network.make(k), VARIANTS, share, draw, {"hop by hop": DEFAULT})


ROUNDS, SECONDS = "rounds until it converges", "seconds"
MORE, LONGER = "rounds over those of CD", "seconds over those of CD"
RATES = (0.001, 0.005, 0.01)
EPSILON = {"CD": 1e-5, "SGD-lazy": 1e-4}
SHARE, PENALTY, MOST = 0.001, 1.0, 200


def solvers(draw: int, k: int) -> list[Row]:
    """Return the rounds and processor seconds of each solver on one draw, without the paths over
    failed devices."""
    network = Network.make(k)
    truth = draw_truth(network, SHARE, draw)
    fabric = network.fabric
    failed = np.isin(fabric.link_src, truth.devices) | np.isin(fabric.link_dst, truth.devices)
    every = Incidence.of(network.paths, undirected=True)
    used = ~every.paths_with(failed[::2][every.link_ids])
    paths = network.paths.take(np.flatnonzero(used))
    probes = probe(paths, truth.success, draw)
    incidence, y = Incidence.of(paths, undirected=True), 1 - probes.lost / probes.sent

    begin = time.process_time()
    fitted = coordinate_descent(
        incidence, y, probes.sent, penalty=PENALTY, tolerance=0.0, max_iterations=MOST
    )
    seconds = time.process_time() - begin
    f = fitted.objective
    rounds = 1 + int(np.argmax(f[:-1] - f[1:] < EPSILON["CD"] * f[1:]))
    found = {("CD", "no rate"): (rounds, seconds * rounds / (len(f) - 1))}
    for rate in RATES:
        begin = time.process_time()
        descent = stochastic_descent(
            incidence, y, rate=rate, seed=draw, penalty=PENALTY, tolerance=EPSILON["SGD-lazy"]
        )
        seconds = time.process_time() - begin
        found["SGD-lazy", label(rate)] = len(descent.objective) - 1, seconds
    rows = []
    for (series, x), (rounds, seconds) in found.items():
        rows += [Row(ROUNDS, series, x, draw, rounds), Row(SECONDS, series, x, draw, seconds)]
    base = found["CD", "no rate"]
    for (series, x), figures in found.items():
        for what, value, one in zip((MORE, LONGER), figures, base, strict=True):
            if series != "CD":
                rows.append(Row(what, series, x, draw, value / max(one, 1e-9)))
    return rows


def timed(draws: range, k: int) -> list[Row]:
    """Return the rows of `solvers`, in rounds and processor seconds, for several draws, after a
    small run, so that nothing is compiled or loaded while the time is measured."""
    solvers(0, 4)
    return [row for draw in draws for row in solvers(draw, k)]


def figure_7(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 7, one for five draws."""
    k = 8 if effort.small else 48
    every = draw_groups(effort.draws, 5)
    return {name: partial(timed, draws, k) for name, draws in every.items()}


LAMBDAS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TRADE = "errors at λ = 8 / at λ = 0.05"


def figure_8(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 8, with 1 % of the links faulty."""
    return by_share(lambdas, (0.01,), effort)


def lambdas(draw: int, k: int, share: float) -> list[Row]:
    """Return the numbers of false negatives and of false positives for each λ, which is x."""
    rows = []
    methods = {label(weight): NetBouncer(penalty=weight) for weight in LAMBDAS}
    for row in scores(Network.make(k), methods, share, draw):
        rows.append(row._replace(series=OURS, x=row.series))
    ends = {(row.quantity, row.x): row.value for row in rows}
    for quantity in (FN, FP):
        first, last = (ends[quantity, label(end)] for end in (LAMBDAS[0], LAMBDAS[-1]))
        rows.append(Row(TRADE, OURS, quantity, draw, (last + 1) / (first + 1)))
    return rows


def figure_9(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 9, for each share of faulty links."""
    return by_share(rivals, SHARES, effort)


def rivals(draw: int, k: int, share: float) -> list[Row]:
    """Return the scores of NetBouncer and other methods on one draw, with a share of faulty
    links."""
    return scores(Network.make(k), RIVALS, share, draw)
