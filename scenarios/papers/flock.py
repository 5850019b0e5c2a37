# SPDX-License-Identifier: Apache-2.0
"""Flock's figures 2, 3, 4 (c), 5 and 8, and table 1: accuracy by kind of telemetry, and time of the
search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

from analysis.evaluation.calibration import Case, accuracy, calibrate, choose
from analysis.methods.base import Localizer, decide
from analysis.methods.flock.search import Search, plain_greedy
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.sherlock import ferret
from analysis.methods.vigil.vigil import Vigil
from analysis.telemetry.telemetry import Telemetry
from scenarios.papers.experiment import Effort, Row, Task, by_draw, draw_groups, label
from scenarios.papers.flock_network import (
    ENVIRONMENTS,
    FLOWS,
    PARAMETERS,
    Made,
    World,
    device_failures,
    flock,
    lossy_links,
    network,
    silent_drops,
    soft_failure,
)
from testbed.fabric.clos import TopologyError
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree

F, PRECISION, RECALL = "f-score", "precision", "recall"
Scheme = tuple[str, str]
"""A method's name and the kinds of its telemetry."""
Way = tuple[Callable[[World], Telemetry], Localizer]
Traces = Sequence[Made]


@cache
def schemes(small: bool) -> Mapping[Scheme, Way]:
    """Return the methods of figures 2 and 3: Flock with the parameters of its authors' code;
    NetBouncer and 007 calibrated on 8 other traces (section 5.2)."""
    flows, seeds = (4_000, (4, 5)) if small else (FLOWS, range(4, 12))
    train = [silent_drops(network(small), 1000 + seed, flows) for seed in seeds]
    ways: dict[Scheme, Way] = {
        ("Flock", kinds): (partial(World.telemetry, kinds=kinds), flock(*parameters))
        for kinds, parameters in PARAMETERS.items()
    }
    return ways | baselines(train, ("INT", "A1"))


def baselines(train: Traces, netbouncer: Sequence[str]) -> dict[Scheme, Way]:
    """Return NetBouncer for some kinds of telemetry, and 007, calibrated on ``train``."""
    limits = {"link_threshold": (0.997, 0.998, 0.9985, 0.999, 0.9993), "penalty": (0.01, 1.0)}
    shares = {"threshold": (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)}
    ways: dict[Scheme, Way] = {}
    for kinds in netbouncer:
        view = partial(World.for_netbouncer, kinds=kinds)
        ways["NetBouncer", kinds] = view, retuned(train, view, NetBouncer, limits)
    ways["007", "A2"] = World.for_vigil, retuned(train, World.for_vigil, Vigil, shares)
    return ways


def retuned(
    traces: Traces,
    view: Callable[[World], Telemetry],
    make: Callable[..., Localizer],
    grid: Mapping[str, Sequence[Any]],
) -> Localizer:
    """Return a method with the parameters of a grid that section 5.2's rule chooses on some
    traces."""
    known = [Case(view(world), case.links, case.devices) for world, case in traces]
    return make(**choose(calibrate(make, grid, known)).parameters)


def scored(name: str, ways: Mapping[Scheme, Way], traces: Iterable[Made], draw: int) -> list[Row]:
    """Return mean precision and recall over the traces, and the F of these means, each 0 to 1, for
    each method and telemetry."""
    found: dict[Scheme, list[tuple[float, float]]] = {scheme: [] for scheme in ways}
    for world, case in traces:
        for scheme, (view, localizer) in ways.items():
            found[scheme].append(accuracy(decide(localizer, view(world)), case))
    rows = []
    for (method, kinds), each in found.items():
        precision, recall = np.mean(each, axis=0).tolist()
        f1 = 2 * precision * recall / max(precision + recall, 1e-9)
        for what, value in ((F, f1), (PRECISION, precision), (RECALL, recall)):
            rows.append(Row(f"{what}, {name}", method, kinds, draw, value))
    return rows


DROPS_100K, DROPS_400K, DEVICES = (
    "silent drops, 100K flows",
    "silent drops, 400K flows",
    "device failures, 400K flows",
)


def few_faults(draws: range, name: str, small: bool) -> list[Row]:
    """Return the scores of eight traces for each draw, with 1 to 8 failed links, or one or two
    failed devices."""
    flows = (FLOWS if name != DROPS_100K else FLOWS // 4) // (100 if small else 1)
    make = device_failures if name == DEVICES else silent_drops
    rows = []
    for draw in draws:
        seeds = range(8 * draw, 8 * draw + (2 if small else 8))
        traces = (make(network(small), seed, flows) for seed in seeds)
        rows += scored(name, schemes(small), traces, draw)
    return rows


def figure_2(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 2, one for each kind of fault and 20 draws."""
    return {
        f"{number}-{draws}": partial(few_faults, some, name, effort.small)
        for number, name in enumerate((DROPS_100K, DROPS_400K, DEVICES))
        for draws, some in draw_groups(effort.draws).items()
    }


SOFT_RATES = (0.002, 0.004, 0.006, 0.01, 0.018)


def soft(draws: range, rate: float, small: bool) -> list[Row]:
    """Return the scores of two uniform and two skewed traces for each draw, with one failed link;
    series are method and telemetry, x is the loss rate."""
    flows, rows = FLOWS // (100 if small else 1), []
    for draw in draws:
        for name in ("uniform", "skewed"):
            seeds = (2 * draw, 2 * draw + 1)
            skewed = name == "skewed"
            traces = (soft_failure(network(small), seed, flows, rate, skewed) for seed in seeds)
            rows += scored(name, schemes(small), traces, draw)
    return [row._replace(series=f"{row.series} ({row.x})", x=label(rate)) for row in rows]


def figure_3(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 3, one for each loss rate and 20 draws."""
    rates = SOFT_RATES[-1:] if effort.small else SOFT_RATES
    return {
        f"{label(rate)}-{draws}": partial(soft, some, rate, effort.small)
        for rate in rates
        for draws, some in draw_groups(effort.draws).items()
    }


SECONDS, FASTER = "seconds of the processor", "times as fast as Sherlock"
PLAIN = "Sherlock"


def searches(draw: int, k: int, flows: int) -> list[Row]:
    """Return the processor seconds of each search on the same model, with two failed links."""
    fabric, rng = FatTree(k), np.random.default_rng([draw, 4])
    failed = rng.choice(fabric.n_links, 2, replace=False)
    loss = lossy_links(fabric, failed, rng.uniform(5e-3, 1e-2, 2), rng)
    world = World(Ecmp(fabric), loss, flows, fabric.n_tors * fabric.n_cores, rng)
    model = flock(0.003, 2e-4, -15.0).model(world.telemetry("A1+A2+P"), listed=True)
    every: dict[str, Callable[[], object]] = {
        "greedy with JLE": lambda: Search(model).run(refine=False, devices=True),
        "greedy": lambda: plain_greedy(model),
        "Sherlock with JLE": lambda: ferret(model, 2, jle=True),
        PLAIN: lambda: ferret(model, 2, jle=False),
    }
    rows, took = [], {}
    for name, search in every.items():
        begin = time.process_time()
        search()
        took[name] = max(time.process_time() - begin, 1e-6)
        rows.append(Row(SECONDS, name, f"K={k}", draw, took[name]))
    for name in every:
        if name != PLAIN:
            rows.append(Row(FASTER, name, "two failures", draw, took[PLAIN] / took[name]))
    return rows


def timed(draw: int, k: int, flows: int) -> list[Row]:
    """Return the rows of `searches`, in processor seconds, after a small run, so that nothing is
    compiled or loaded while the time is measured."""
    searches(0, 4, 500)
    return searches(draw, k, flows)


def figure_4c(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 4 (c), one for each draw."""
    size = (4, 2_000) if effort.small else (8, 20_000)
    return by_draw(effort, timed, *size)


OF_HIDDEN = (0.006, 2e-4, -25.0)
"""Flock's (p_b, p_g, log prior) for flows whose path is not known."""


def lacking(omitted: float, small: bool, rng: np.random.Generator) -> Ecmp:
    """Return Flock's network without a random share of its links; links that would disconnect ToRs
    are drawn again."""
    regular = network(small).fabric
    count = round(omitted * regular.n_edges)
    for _ in range(100 if count else 0):
        with suppress(TopologyError):
            return Ecmp(regular.without(rng.choice(regular.n_edges, count, replace=False)))
    if count:
        raise TopologyError(f"{regular.title} falls apart without {100 * omitted:g} % of its links")
    return network(small)


def irregular(draw: int, omitted: float, small: bool) -> list[Row]:
    """Return the scores with one failed link, on flows whose path is not known. The blamed links
    are a class that these flows cannot tell apart, so that precision is at most the inverse of its
    size."""
    rng = np.random.default_rng([draw, 76])
    ecmp = lacking(omitted, small, rng)
    rate = float(rng.uniform(4e-3, 1e-2))
    world, case = soft_failure(ecmp, draw, FLOWS // (100 if small else 1), rate, False)
    verdict = flock(*OF_HIDDEN).localize(world.telemetry("P"))
    classes = verdict.equivalent
    assert classes is not None
    found = accuracy(verdict, case)
    best = 1 / int((classes == classes[case.links[0]]).sum())
    x, ours = label(100 * omitted), "Flock (P)"
    return [
        Row(PRECISION, ours, x, draw, found[0]),
        Row(RECALL, ours, x, draw, found[1]),
        Row(PRECISION, "at most", x, draw, best),
    ]


def figure_5c(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 5 (c), one for each share of omitted links and draw."""
    omitted = (0.0, 0.01) if effort.small else (0.0, 0.01, 0.02, 0.05)
    return {
        f"omitted-{label(share)}-draw-{n}": partial(irregular, n, share, effort.small)
        for share in omitted
        for n in range(effort.draws)
    }


OMITTED = (0.0, 0.02, 0.05, 0.1)


def with_paths(draws: range, omitted: float, small: bool) -> list[Row]:
    """Return the scores of silent drops as in figure 2, in networks that lack a share of their
    links; methods are calibrated on other networks that lack as many."""
    flows, n = (4_000, 2) if small else (FLOWS, 4)

    def made(seed: int) -> Made:
        """Return a network that lacks the share of links, with silent drops, both drawn by
        ``seed``."""
        ecmp = lacking(omitted, small, np.random.default_rng([seed, 79]))
        return silent_drops(ecmp, seed, flows)

    ways: dict[Scheme, Way] = {
        ("Flock", kinds): (partial(World.telemetry, kinds=kinds), flock(*parameters))
        for kinds, parameters in {**PARAMETERS, "P": OF_HIDDEN}.items()
        if "A1" not in kinds  # its probes are for regular networks (section 7.6)
    }
    ways |= baselines([made(seed) for seed in range(1000, 1000 + n)], ("INT",))
    rows = []
    for draw in draws:
        traces = (made(seed) for seed in range(4 * draw, 4 * draw + n))
        for row in scored("", ways, traces, draw):
            what = row.quantity.removesuffix(", ")
            series = f"{row.series} ({row.x})"
            rows += [Row(what, series, label(100 * omitted), draw, row.value)] * (what != F)
    return rows


def figure_5(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 5, one for each share of omitted links and 20 draws."""
    return {
        f"omitted-{label(share)}-{draws}": partial(with_paths, some, share, effort.small)
        for share in (OMITTED[1:2] if effort.small else OMITTED)
        for draws, some in draw_groups(effort.draws).items()
    }


SWEPT = "A1+A2+P"
P_GOOD = (1e-4, 2e-4, 3e-4, 5e-4, 7e-4)
P_BAD = (1e-3, 2e-3, 4e-3, 8e-3)
PRIORS = (0.0, -2.0, -5.0, -10.0, -15.0, -25.0)
OF_PRIOR = " by prior"


def swept(draw: int, small: bool) -> list[Row]:
    """Return the scores on four traces of silent drops, for every setting of Flock's parameters."""
    n, flows = (2, 4_000) if small else (4, FLOWS)
    ecmp = network(small)
    made = [silent_drops(ecmp, seed, flows) for seed in range(n * draw, n * (draw + 1))]
    cases = [(world.telemetry(SWEPT), case) for world, case in made]
    p_bad, p_good, prior = PARAMETERS[SWEPT]
    settings = [("", f"p_b = {b:g}", g, (b, g, prior)) for b in P_BAD for g in P_GOOD if g < b]
    settings += [(OF_PRIOR, "Flock", p, (p_bad, p_good, p)) for p in PRIORS]
    rows = []
    for by, series, x, parameters in settings:
        method = flock(*parameters)
        each = [accuracy(decide(method, telemetry), case) for telemetry, case in cases]
        for what, value in zip((PRECISION, RECALL), np.mean(each, axis=0).tolist(), strict=True):
            rows.append(Row(what + by, series, label(x), draw, value))
    return rows


def figure_8(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of figure 8, one for each draw."""
    return by_draw(effort, swept, effort.small)


GRID = {
    "p_bad": (0.001, 0.002, 0.003, 0.006, 0.012),
    "p_good": (1e-4, 2e-4, 3e-4, 5e-4),
    "prior": (-5.0, -15.0, -25.0, -35.0),
}
AGGREGATE = "aggregate f-score"
DIFFERENT, SAME = "D", "S"


def calibrated(name: str, same: bool, small: bool) -> Mapping[Scheme, Way]:
    """Return every method, calibrated on 8 traces (section 5.2) of the same environment or of
    another one."""
    make = ENVIRONMENTS[name][same]
    train: Traces = [make(small, 1000 + seed) for seed in range(4, 6 if small else 4 + 8)]
    grid = {name: values[1:3] for name, values in GRID.items()} if small else GRID
    ways: dict[Scheme, Way] = {}
    for kinds in ("A1+A2+P", "A2", "INT"):
        view = partial(World.telemetry, kinds=kinds)
        ways["Flock", kinds] = view, retuned(train, view, _flock, grid)
    return ways | baselines(train, ("INT",))


def _flock(p_bad: float, p_good: float, prior: float) -> Localizer:
    """Return Flock with these parameters; the grid's names are arguments of this function."""
    return flock(p_bad, p_good, prior)


def tested(draws: range, name: str, small: bool) -> list[Row]:
    """Return the scores of eight traces of an environment for each draw, by methods calibrated
    there and elsewhere."""
    rows, n = [], 2 if small else 8
    both = {how: calibrated(name, how == SAME, small) for how in (DIFFERENT, SAME)}
    ways = {
        (method, f"{kinds}), {how}"): way
        for how, verdicts in both.items()
        for (method, kinds), way in verdicts.items()
    }
    for draw in draws:
        traces = (ENVIRONMENTS[name][1](small, seed) for seed in range(n * draw, n * (draw + 1)))
        for row in scored(name, ways, traces, draw):
            rows.append(Row(row.quantity, f"{row.series} ({row.x}", name, draw, row.value))
    return rows


def aggregates(rows: Sequence[Row]) -> list[Row]:
    """Return the mean F over the environments, the last column of the paper's table."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.quantity.startswith(F):
            found.setdefault((row.series, row.draw), []).append(row.value)
    return [
        Row(AGGREGATE, series, "all", draw, float(np.mean(values)))
        for (series, draw), values in found.items()
    ]


def table_1(effort: Effort) -> Mapping[str, Task]:
    """Return the tasks of table 1, one for each environment and 20 draws."""
    return {
        f"{name.replace(' ', '-')}-{draws}": partial(tested, some, name, effort.small)
        for name in ENVIRONMENTS
        for draws, some in draw_groups(effort.draws).items()
    }
