"""007's figures 3 to 12 in the network of its section 6.1, and how long it takes at K=48.

The flows that lost packets are traced whole, as the paper's simulator traces them. A flow's cause
is right if it is the link that lost most of its packets. As in the paper, noise drops do not count:
accuracy is over the flows that 007 does not put down to noise, for every method alike.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.table import Table

from analysis.methods.base import Diagnosis, Localizer
from analysis.methods.vigil.set_cover import BinaryProgram, IntegerProgram, MaxCoverage
from analysis.methods.vigil.vigil import Vigil
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.network.flow import send

__all__ = ["bench_vigil"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]

TORS, AGGS, CORES, HOSTS = 20, 8, 10, 40
"""ToRs and tier-1 switches a pod, tier-2 switches, hosts a ToR: with 2 pods 4160 links."""

EPOCHS = 6
PACKETS = 100
NOISE = 1e-6
PAPER = Vigil(threshold=0.01, chance=np.inf, false_alarm=np.inf)
METHODS: dict[str, Localizer] = {
    "007": Vigil(),
    "alg. 1": PAPER,
    "integer": IntegerProgram(),
    "binary": BinaryProgram(),
    "greedy": MaxCoverage(),
}


@dataclass(frozen=True)
class Setting:
    """``failed`` links lose at rates drawn from ``rates``, the others at up to ``noise``.

    With ``worst`` the first failed link's rate is drawn from that range instead. A host opens
    ``flows`` connections an epoch, drawn from a range. Of all connections the share ``skew`` goes
    to ``hot`` ToRs. ``claim`` is what the paper reports.
    """

    name: str
    claim: str
    failed: int = 1
    rates: tuple[float, float] = (0.0005, 0.01)
    worst: tuple[float, float] | None = None
    noise: float = NOISE
    flows: tuple[int, int] = (60, 60)
    hot: int = 0
    skew: float = 0.0
    pods: int = 2


SETTINGS = (
    Setting("3, 4: 1 failed, 0.05-1 %", "> 96 %"),
    Setting("3, 4: 5 failed", "> 96 %", 5),
    Setting("3, 4: 10 failed", "> 96 %", 10),
    Setting("3, 4: 14 failed", "> 96 %", 14),
    Setting("5a: 1 failed, 0.02 %", "as integer", rates=(0.0002, 0.0002)),
    Setting("5a, 10: 1 failed, 0.1 %", "as integer", rates=(0.001, 0.001)),
    Setting("5b: 10 failed, 0.01-1 %", "stays high", 10, (0.0001, 0.01)),
    Setting("6a: 1 failed, 10 x noise", "little impact", noise=1e-5),
    Setting("6b: 5 failed, 10 x noise", "little impact", 5, noise=1e-5),
    Setting("7a: 1 failed, 10-60 flows", "stays high", flows=(10, 60)),
    Setting("7b: 10 failed, 10-60 flows", "stays high", 10, flows=(10, 60)),
    Setting("8a: 1 failed, 80 % to 10 ToRs", ">= 85 %", rates=(0.001, 0.01), hot=10, skew=0.8),
    Setting("8b: 10 failed, 80 % to 10 ToRs", ">= 98 %", 10, hot=10, skew=0.8),
    Setting("9: 5 failed, 50 % to 1 ToR", "tolerated", 5, hot=1, skew=0.5),
    Setting("9: 10 failed, 70 % to 1 ToR", "falls", 10, hot=1, skew=0.7),
    Setting("12: 7 failed, rates skewed", "> 90 %", 7, (0.0001, 0.001), (0.1, 1.0)),
    Setting("sec. 6.7: 1 failed, 1 pod", "98 %, recall >= 98 %", pods=1),
    Setting("sec. 6.7: 1 failed, 3 pods", "91 %, recall >= 98 %", pods=3),
    Setting("sec. 6.7: 1 failed, 4 pods", "90 %, recall >= 98 %", pods=4),
    Setting("sec. 6.7: 30 failed", "98 %", 30, (0.0001, 0.01)),
)


def paper_network(pods: int) -> Fabric:
    """The Clos of section 6.1, hosts and their links included: they are tier 0."""
    tors, aggs = pods * TORS, pods * AGGS
    hosts = tors * HOSTS
    tor, agg = np.arange(tors).repeat(AGGS), np.arange(aggs).repeat(CORES)
    names = [
        f"{kind}{i}"
        for kind, n in (("host", hosts), ("tor", tors), ("t1_", aggs), ("t2_", CORES))
        for i in range(n)
    ]
    up_of_tor = tor // TORS * AGGS + np.tile(np.arange(AGGS), tors)
    return Fabric(
        names,
        np.repeat([0, 1, 2, 3], [hosts, tors, aggs, CORES]),
        np.concatenate((np.arange(hosts), hosts + tor, hosts + tors + agg)),
        np.concatenate(
            (
                hosts + np.arange(hosts) // HOSTS,
                hosts + tors + up_of_tor,
                hosts + tors + aggs + np.tile(np.arange(CORES), aggs),
            )
        ),
    )


@dataclass(frozen=True)
class Epoch:
    """What 007 sees of 30 seconds, the failed links, and the true cause of each connection."""

    telemetry: Telemetry
    failed: IntArray
    cause: IntArray


def fail_links(
    fabric: Fabric, setting: Setting, rng: np.random.Generator
) -> tuple[IntArray, FloatArray]:
    """Failed links between switches, a quarter of each kind and direction, and all loss rates."""
    loss = rng.uniform(0, setting.noise, fabric.n_links)
    upper = fabric.tier[fabric.link_dst[::2]]
    failed = np.empty(0, np.int32)
    levels = (2,) if setting.pods == 1 else (2, 3)
    kinds = [(level, way) for level in levels for way in (0, 1)]
    for kind, n in enumerate(rng.multinomial(setting.failed, np.full(len(kinds), 1 / len(kinds)))):
        level, way = kinds[kind]
        some = rng.choice(np.flatnonzero(upper == level), n, replace=False)
        failed = np.concatenate((failed, 2 * some + way))
    loss[failed] = rng.uniform(*setting.rates, len(failed))
    if setting.worst is not None:
        loss[rng.choice(failed)] = rng.uniform(*setting.worst)
    return failed.astype(np.int32), loss


def simulate(ecmp: Ecmp, setting: Setting, seed: int) -> Epoch:
    """One epoch: every host's connections to hosts of other racks, up to 100 packets each."""
    rng = np.random.default_rng(seed)
    failed, loss = fail_links(ecmp.fabric, setting, rng)
    hosts, tors = ecmp.fabric.n_tors, setting.pods * TORS
    least, most = setting.flows
    src = np.repeat(np.arange(hosts), rng.integers(least, most + 1, hosts)).astype(np.int32)
    rack = src // HOSTS
    to = rng.integers(0, tors - 1, len(src))
    to += to >= rack
    if setting.hot:
        hot = rng.choice(tors, setting.hot, replace=False)[rng.integers(0, setting.hot, len(src))]
        to = np.where((rng.random(len(src)) < setting.skew) & (hot != rack), hot, to)
    dst = (to * HOSTS + rng.integers(0, HOSTS, len(src))).astype(np.int32)
    paths = ecmp.draw(src, dst, rng)
    rows = paths.padded()
    left = rng.integers(1, PACKETS + 1, len(src))
    drops = np.zeros(rows.shape, np.int64)
    for hop in range(rows.shape[1]):
        rate = np.where(rows[:, hop] >= 0, loss[rows[:, hop]], 0.0)
        drops[:, hop] = rng.binomial(left, rate)
        left -= drops[:, hop]
    lost = drops.sum(axis=1)
    bad = np.flatnonzero(lost)
    # Where two links lost as many, the lossier one is the cause.
    weight = drops[bad] + np.where(drops[bad] > 0, 0.5 * loss[rows[bad]], 0.0)
    cause = rows[bad, np.argmax(weight, axis=1)]
    connections = Connections(
        src[bad], dst[bad], lost[bad], paths.take(bad), np.ones(len(bad), np.bool_), 15 * len(bad)
    )
    return Epoch(Telemetry(ecmp.fabric, "tor", connections=connections), failed, cause)


@dataclass
class Result:
    """Counts over the epochs of a setting, one method."""

    flows: int = 0
    right: int = 0
    hidden: int = 0
    flagged: int = 0
    hits: int = 0
    failed: int = 0
    seconds: float = 0.0

    def add(self, epoch: Epoch, diagnosis: Diagnosis, counted: npt.NDArray[np.bool_]) -> None:
        assert diagnosis.connection_cause is not None
        cause = diagnosis.connection_cause
        self.flows += int(counted.sum())
        self.right += int((cause == epoch.cause)[counted].sum())
        self.hidden += int((np.isin(epoch.cause, epoch.failed) & (cause < 0)).sum())
        self.flagged += len(diagnosis.flagged)
        self.hits += int(np.isin(diagnosis.flagged, epoch.failed).sum())
        self.failed += len(epoch.failed)
        self.seconds += diagnosis.seconds

    @property
    def accuracy(self) -> str:
        return f"{100 * self.right / self.flows:.1f}" if self.flows else "-"

    @property
    def found(self) -> str:
        precision = self.hits / self.flagged if self.flagged else 1.0
        return f"{100 * precision:.0f} {100 * self.hits / self.failed:.0f}"


def measure(ecmp: Ecmp, setting: Setting) -> dict[str, Result]:
    results = {name: Result() for name in METHODS}
    for seed in range(EPOCHS):
        epoch = simulate(ecmp, setting, seed)
        verdicts = {name: method.localize(epoch.telemetry) for name, method in METHODS.items()}
        ours = verdicts["007"].connection_cause
        assert ours is not None
        for name, verdict in verdicts.items():
            results[name].add(epoch, verdict, ours >= 0)
    return results


def bench_vigil(console: Console) -> None:
    """Print accuracy, precision and recall beside the paper's claims."""
    fabrics = {pods: Ecmp(paper_network(pods)) for pods in sorted({s.pods for s in SETTINGS})}
    table = Table(
        title=f"007, {fabrics[2].fabric.n_links} links with 2 pods, {EPOCHS} epochs a row: % of "
        "flows blamed on the right link; precision and recall of the blamed links in %",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        title_justify="left",
    )
    table.add_column("figure: setting", no_wrap=True)
    table.add_column("the paper on 007", no_wrap=True)
    for column in ("flows", "007", "int.", "bin.", "greedy", "hidden"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("007", "alg. 1", "int."):
        table.add_column(f"{column} P R", justify="right", no_wrap=True)
    seconds = dict.fromkeys(METHODS, 0.0)
    for setting in SETTINGS:
        results = measure(fabrics[setting.pods], setting)
        row = [results[name].accuracy for name in ("007", "integer", "binary", "greedy")]
        found = [results[name].found for name in ("007", "alg. 1", "integer")]
        hidden = str(results["007"].hidden)
        table.add_row(setting.name, setting.claim, str(results["007"].flows), *row, hidden, *found)
        for name, result in results.items():
            seconds[name] = max(seconds[name], result.seconds / EPOCHS)
    console.print(table)
    slowest = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
    console.print(
        "flows: those that 007 does not put down to noise; hidden: drops of failed links that it "
        "puts down to noise.\nint., bin.: integer and binary program, which blame the same links; "
        f"alg. 1: as printed, threshold 1 %.\nSeconds an epoch, in the slowest row: {slowest}"
    )
    bench_large(console)


def bench_large(console: Console, k: int = 48, n_flows: int = 2_000_000) -> None:
    """007 on a fat-tree with 1 % of its links failed."""
    fabric = FatTree(k)
    ecmp = Ecmp(fabric)
    rng = np.random.default_rng(1)
    loss = rng.uniform(0, NOISE, fabric.n_links)
    failed = rng.choice(fabric.n_links, fabric.n_links // 100, replace=False)
    loss[failed] = rng.uniform(0.001, 0.1, len(failed))
    src = rng.integers(0, fabric.n_tors, n_flows).astype(np.int32)
    dst = (src + rng.integers(1, fabric.n_tors, n_flows, np.int32)) % fabric.n_tors
    paths = ecmp.draw(src, dst.astype(np.int32), rng)
    lost = send(loss[None, :], paths, np.full(n_flows, PACKETS), rng).lost
    bad = np.flatnonzero(lost)
    whole = np.ones(len(bad), np.bool_)
    part = Connections(src[bad], dst[bad].astype(np.int32), lost[bad], paths.take(bad), whole, 0)
    begin = time.perf_counter()
    flagged = Vigil().localize(Telemetry(fabric, "tor", connections=part)).flagged
    seconds = time.perf_counter() - begin
    hits = int(np.isin(flagged, failed).sum())
    console.print(
        f"007 at K={k}: {fabric.n_links:,} links, {len(failed):,} of them failed; {len(bad):,} of "
        f"{n_flows:,} connections lossy: {seconds:.1f} s, precision "
        f"{hits / max(len(flagged), 1):.3f}, recall {hits / len(failed):.3f}"
    )


if __name__ == "__main__":
    bench_vigil(Console(width=120, highlight=False))
