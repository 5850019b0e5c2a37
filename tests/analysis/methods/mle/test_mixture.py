# SPDX-License-Identifier: Apache-2.0
"""Flows that lost packets on hidden paths: against the mixture written out, and verdicts."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.special import logsumexp

from analysis.methods.mle.hidden import GIVEN, HiddenFlows, sum_up
from analysis.methods.mle.mixture import KERNELS, RATES, make_mixture, set_mean
from analysis.methods.mle.mixture_search import explain_hidden
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.problem import Observed, Units, observe
from analysis.telemetry.telemetry import Flows, Probes, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.paths import Paths, PathSets
from tests.analysis.methods.mle.drawn import K4, drawn_flows

SETS = [[[4, a, b] for a in (0, 1) for b in (2, 3)], [[4, 0], [5, 1]], [[5, 3]]]
KNOWN = [[0, 2], [0, 2], [1, 5], [4]]


def hidden(flows):
    """Flows (set, arrived, lost) over `SETS`."""
    of, arrived, lost = (np.array(column, float) for column in zip(*flows, strict=True))
    columns = sum_up(len(SETS), of.astype(np.int64), arrived, lost, 1.0)
    paths = [path for paths in SETS for path in paths]
    return HiddenFlows(
        np.cumsum([0, *map(len, SETS)]),
        np.cumsum([0, *map(len, paths)], dtype=np.int32),
        np.concatenate(paths).astype(np.int32),
        np.ones(len(paths), np.float32),
        *columns,
        hops=np.array([float(len(paths[0])) for paths in SETS]),
    )


def known(sent, lost):
    paths = Paths.from_padded(np.array([path + [-1] * (2 - len(path)) for path in KNOWN]))
    units = Units(np.arange(6, dtype=np.int32), np.ones(6))
    return observe([Observed(paths, np.asarray(sent, float), np.asarray(lost, float))], units)


def plain(sent, lost, h, x, mean):
    """Over known paths k ln(1 - e^-X) - a X; over hidden ones the logarithm of the sum of terms."""
    rate = np.array([(x[path] + mean).sum() for path in KNOWN])
    total = float((lost * np.log(-np.expm1(-rate)) - (sent - lost) * rate)[sent > 0].sum())
    for g, paths in enumerate(SETS):
        rate = np.array([x[path].sum() for path in paths]) + mean * len(paths[0])
        own = slice(h.flow_ptr[g], h.flow_ptr[g + 1])
        k, times, exponent = h.lost[own], h.times[own], np.outer(h.arrived[own], rate)
        given = k == GIVEN
        total -= float(times[given] @ np.log(-np.expm1(-exponent[given]).sum(axis=1)))
        terms = np.outer(k, np.log(-np.expm1(-rate))) - exponent
        total += float(times[~given] @ logsumexp(terms[~given], axis=1))
    return total


SENT, LOST = np.array([100.0, 50.0, 300.0, 80.0]), np.array([3.0, 0.0, 1.0, 0.0])
FLOWS = [(0, 100, 0), (0, 90, 2), (0, 7, 1), (1, 40, 0), (1, 0, 5), (2, 60, 1), (2, 500, 0)]
FLOWS += [(0, 40, 0), (2, 40, 0)]  # as large as one of another set


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("blamed", [{}, {0: 0.02}, {0: 0.02, 3: 1.5}, {4: 8.0, 1: 0.3}])
def test_gains_are_those_of_the_mixture(given, blamed):
    h = hidden([(g, n, GIVEN) for g, n, _ in FLOWS if n] if given else FLOWS)
    m = make_mixture(known(SENT, LOST), np.ones(6), h)
    current, x, mean = np.ones(6, bool), np.zeros(6), 3e-4
    set_mean(mean, m)
    for unit, rate in blamed.items():
        KERNELS.change_rate(i=unit, new_rate=rate, mix=m, current=current)
        x[unit] = rate
    now = plain(SENT, LOST, h, x, mean)
    rates, gain = np.geomspace(1e-3, 8, RATES), np.zeros(RATES)
    rates[0] = 0.0
    for unit in range(6):
        KERNELS.gains(i=unit, rates=rates, mix=m, gain=gain)
        for rate, gained in zip(rates, gain, strict=True):
            y = x.copy()
            y[unit] = rate
            want = plain(SENT, LOST, h, y, mean) - now
            assert gained == pytest.approx(want, rel=1e-6, abs=1e-6)
    assert set_mean(2 * mean, m) - set_mean(mean, m) == pytest.approx(
        plain(SENT, LOST, h, x, 2 * mean) - now, rel=1e-6
    )


@pytest.mark.parametrize("seed", range(2))
def test_reaches_the_best_set(seed):
    """No set of up to two units has a better penalised likelihood on a grid of rates."""
    rng = np.random.default_rng(seed)
    truth = np.full(6, 1e-5)
    truth[rng.choice(6, 1 + seed % 2, replace=False)] = rng.choice([0.01, 0.1], 1 + seed % 2)
    flows = []
    for _ in range(200):
        g = int(rng.integers(len(SETS)))
        path = SETS[g][rng.integers(len(SETS[g]))]
        n = int(rng.integers(10, 300))
        k = rng.binomial(n, -np.expm1(-truth[path].sum()))
        flows.append((g, n - k, k))
    h, none = hidden(flows), np.zeros(4)
    found = explain_hidden(
        known(none, none), np.ones(6), np.ones(6, bool), h, fault_rate=1e-3, penalty=8.0
    )
    mean = found.mean
    value = plain(none, none, h, found.x, mean) - 8.0 * found.blamed.sum()
    grid = np.geomspace(1e-3, 1, 7)
    assert value > plain(none, none, h, np.zeros(6), mean) - 0.3
    for size in (1, 2):
        for units in combinations(range(6), size):
            for rates in np.stack(np.meshgrid(*[grid] * size), -1).reshape(-1, size):
                x = np.zeros(6)
                x[list(units)] = rates
                assert value > plain(none, none, h, x, mean) - 8.0 * size - 0.3


def passive(loss, seed, n=20_000):
    """Flows between ToRs of K=4, paths hidden."""
    src, dst, _, sent, lost = drawn_flows(loss, seed, n)
    return src, dst, sent, lost


def telemetry(src, dst, sent, lost):
    none = Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))
    own = np.zeros(len(sent), np.bool_)
    return Telemetry(
        K4, "tor+core", flows=Flows.of(K4, src, dst, own, PathSets.known(none), sent, lost)
    )


def test_passive_flows_alone_name_the_tie():
    loss = np.full(K4.n_links, 5e-5)
    link = K4.link("tor0_0->agg0_1")
    loss[link] = 0.02
    result = Mle(kinds="P").localize(telemetry(*passive(loss, 1)))
    tie = [K4.link("tor0_0->agg0_0"), link]
    assert result.flagged.tolist() == sorted(tie)
    assert result.equivalent is not None and len(set(result.equivalent[tie])) == 1


@pytest.mark.parametrize("seed", range(2))
def test_probes_say_where_and_flows_which_direction(seed):
    """Probes go up and back, so they do not tell a link's directions apart."""
    rng = np.random.default_rng(seed)
    loss = np.full(K4.n_links, 5e-5)
    faulty = rng.choice(K4.n_links, 5, replace=False)
    loss[faulty] = 10 ** rng.uniform(-2, -0.5, 5)
    paths = Ecmp(K4).bounces()
    through = np.array([np.prod(1 - loss[paths[p]]) for p in range(len(paths))])
    sent = np.full(len(paths), 2000)
    probes = Probes(paths, sent, rng.binomial(sent, 1 - through))
    seen = replace(telemetry(*passive(loss, seed)), probes=probes)
    assert Mle(kinds="A1+P").localize(seen).flagged.tolist() == sorted(faulty)


def test_the_order_of_flows_does_not_matter():
    loss = np.full(K4.n_links, 5e-5)
    loss[[3, 40]] = 0.01, 0.3
    flows = passive(loss, 2)
    order = np.random.default_rng(0).permutation(len(flows[0]))
    first = Mle(kinds="P").localize(telemetry(*flows))
    second = Mle(kinds="P").localize(telemetry(*(column[order] for column in flows)))
    assert np.array_equal(first.flagged, second.flagged)
    assert first.score == pytest.approx(second.score, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_links_are_not_blamed(seed):
    loss = np.random.default_rng(seed).uniform(0, 1e-4, K4.n_links)
    assert Mle(kinds="P").localize(telemetry(*passive(loss, seed))).flagged.size == 0


def test_all_flows_lost_all():
    loss = np.zeros(K4.n_links)
    loss[K4.link("tor0_0->agg0_0")] = loss[K4.link("tor0_0->agg0_1")] = 1.0
    src, dst, sent, lost = passive(loss, 4)
    mine = src == 0
    result = Mle(kinds="P").localize(telemetry(src[mine], dst[mine], sent[mine], lost[mine]))
    assert result.flagged.size and (lost[mine] == sent[mine]).all()
