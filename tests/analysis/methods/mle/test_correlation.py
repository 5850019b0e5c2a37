"""Losses that come in flows, as in a black hole, against losses of packets one by one."""

import numpy as np
import pytest

from analysis.methods.mle.correlation import correlated
from analysis.methods.mle.mle import Mle
from analysis.methods.mle.problem import Observed, Units, marks, observe
from analysis.methods.mle.search import explain, penalty_of, suspects
from analysis.telemetry.telemetry import Flows, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths, PathSets

K4 = FatTree(4)
HOLE = K4.link("agg1_0->core1")


def flow_records(seed, share, whole):
    """Flows over known paths; of those over the hole ``share`` die whole, or lose that share."""
    rng = np.random.default_rng(seed)
    n = 6000
    src = rng.integers(0, K4.n_tors, n).astype(np.int32)
    dst = ((src + rng.integers(1, K4.n_tors, n)) % K4.n_tors).astype(np.int32)
    paths = Ecmp(K4).draw(src, dst, rng)
    sent = np.minimum((20 * (1 + rng.pareto(1.2, n))).astype(np.int64), 100_000)
    over = np.zeros(n, np.bool_)
    over[paths.owner[paths.links == HOLE]] = True
    died = over & (rng.random(n) < share)
    lost = sent * died if whole else rng.binomial(sent, np.where(over, share, 0.0))
    number = np.arange(n, dtype=np.int32)
    return Telemetry(K4, "tor+core", flows=Flows(PathSets.known(paths), number, sent, lost))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.02, 0.25])
def test_a_hole_is_found_and_said_to_be_one(seed, share):
    result = Mle(kinds="INT").localize(flow_records(seed, share, whole=True))
    assert result.flagged.tolist() == [HOLE]
    assert len(result.remarks) == 1
    assert result.remarks[0].endswith("black hole: agg1_0->core1")


def test_losses_of_packets_are_no_hole():
    result = Mle(kinds="INT").localize(flow_records(1, 0.25, whole=False))
    assert result.flagged.tolist() == [HOLE] and result.remarks == ()


@pytest.mark.parametrize("together", [0.0, 0.02, 0.2])
def test_the_correlation_is_estimated(together):
    """Beta-binomial losses of one link over many paths."""
    rng = np.random.default_rng(3)
    paths = Paths.from_padded(np.array([[0, 1 + nth] for nth in range(400)]))
    sent = rng.integers(100, 2000, 400)
    mean, size = 0.1, 1 / together - 1 if together else 0.0
    rate = rng.beta(mean * size, (1 - mean) * size, 400) if together else np.full(400, mean)
    lost = rng.binomial(sent, rate)
    part = Observed(paths, sent.astype(np.float64), lost.astype(np.float64))
    units = Units.of(marks([PathSets.known(paths)], 401)[0])
    rows = observe([part], units)
    may = suspects(rows.lost_over(), rows.arrived, 1e-3)
    may[1:] = False
    penalty = penalty_of(401)
    found = explain(rows, units.size, may, fault_rate=1e-3, penalty=penalty)
    weighed = correlated([part], units, found)
    assert weighed.any == (together > 0)
    weight = weighed.parts[0].sent / part.sent
    assert weight == pytest.approx(1 / (1 + (sent - 1) * together), rel=0.35)
