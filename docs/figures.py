# SPDX-License-Identifier: Apache-2.0
"""The figures of the methods' pages, drawn by the methods themselves.

``python -m tests.docs.made`` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from analysis.methods.registry import make_method
from analysis.solvers.stages import GROUPS, map_success
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import make_request
from scenarios.experiment.without_packets import simulate

SETTINGS = {"backend": "flow", "k": 8, "seed": 3, "faults": "10pct"}
BLAMED, MISSED, HEALTHY = "#c0392b", "#e6a23c", "#7f8c9a"
AXES: Mapping[str, str] = {
    "canary": "estimated loss rate",
    "netbouncer": "estimated loss rate, both ways",
    "flock": "score: log-posterior gain",
    "007": "score: votes",
    "detector": "estimated loss rate",
    "netscope": "estimated loss rate, both ways",
    "canary-mle": "estimated loss rate",
}
"""What each method's figure shows on its upright axis."""


@cache
def world() -> tuple[Telemetry, np.ndarray]:
    """Return the telemetry of a run without packets, and the true loss rate of each link."""
    request = make_request(None, SETTINGS)
    settings = request.settings()
    layout = layout_of(settings, request.scenario)
    run = simulate(layout)
    rate = np.full(layout.fabric.n_links, 1e-5)
    for fault in layout.plan.faults:
        rate[fault.link] = fault.rate
    return read_telemetry(run, "A1+A2+P"), rate


def draw_method(name: str, path: Path) -> None:
    """Draw what a method says of each link over the link's true loss rate."""
    telemetry, rate = world()
    found = make_method(name).localize(telemetry)
    success = np.asarray(found.success, float)
    shown = AXES[name].startswith("estimated") and not np.isnan(success).all()
    value = 1 - success if shown else np.asarray(found.score, float)
    blamed = np.zeros(len(rate), bool)
    blamed[found.flagged] = True
    if found.native == "undirected":  # blamed both ways: one direction of them is faulty
        rate = np.repeat(rate.reshape(-1, 2).max(axis=1), 2)
    faulty = rate >= 1e-3
    jitter = np.random.default_rng(0).uniform(0.5, 2, len(rate))
    figure, axes = _figure()
    for chosen, color, label in (
        (~faulty & ~blamed, HEALTHY, "healthy, not blamed"),
        (faulty & ~blamed, MISSED, "faulty, missed"),
        (faulty & blamed, BLAMED, "faulty, blamed"),
    ):
        x = np.where(faulty, rate, 1e-5 * jitter)[chosen]
        axes.scatter(x, _up(value[chosen], shown), s=14, color=color, alpha=0.7, label=label)
    wrong = ~faulty & blamed
    axes.scatter(
        (1e-5 * jitter)[wrong], _up(value[wrong], shown), s=40, marker="x", color="k",
        label="healthy, blamed wrongly",
    )  # fmt: skip
    axes.set_xscale("log")
    if shown:
        axes.set_yscale("log")
    axes.set_xlabel("true loss rate of the link (healthy ones at the left)")
    axes.set_ylabel(AXES[name])
    axes.legend(fontsize=7, frameon=False, loc="best")
    _save(figure, path)


def _up(value: np.ndarray, log: bool) -> np.ndarray:
    value = np.nan_to_num(value)
    return np.maximum(value, 1e-6) if log else value


def draw_mapping(path: Path) -> None:
    """Draw equation 4: how each stage of Canary maps success probabilities into [0, 0.8]."""
    figure, axes = _figure()
    for stage, (high, low) in enumerate(pairwise(GROUPS)):
        loss = np.geomspace(low, high * (1 if high == 1 else 0.9999), 200)
        y, group = 1 - loss, np.full(len(loss), stage)
        mapped = map_success(y, group, GROUPS)[group == stage]
        axes.plot(loss, mapped, label=f"stage {stage + 1}: {low:g} to {high:g}")
    axes.set_xscale("log")
    axes.set_xlabel("loss rate of the segment, 1 - y")
    axes.set_ylabel("mapped success y'")
    axes.legend(fontsize=7, frameon=False)
    _save(figure, path)


def draw_objective(path: Path) -> None:
    """Draw the objective along one link that n segments share, each mapped to y' = 0.78."""
    figure, axes = _figure()
    x = np.linspace(0.4, 1, 400)
    for n, color in ((2, MISSED), (3, "#2e86c1"), (8, BLAMED)):
        objective = (n * (0.78 - x) ** 2 + x * (1 - x)) / n
        least = x[np.argmin(objective)]
        axes.plot(x, objective, color=color, label=f"{n} segments: minimum at x = {least:.2f}")
        axes.plot(least, objective.min(), "o", color=color)
    axes.set_xlabel("success probability x of the link (1: not blamed)")
    axes.set_ylabel("objective / number of segments")
    axes.legend(fontsize=7, frameon=False)
    _save(figure, path)


def draw_small(path: Path) -> None:
    """Draw F1 of canary and canary-mle on 30 fabrics of K=4 and of K=8, each a dot."""
    figure, axes = _figure()
    rng = np.random.default_rng(0)
    for at, k in enumerate((4, 8)):
        for beside, (name, color) in enumerate((("canary", MISSED), ("canary-mle", BLAMED))):
            f1 = [_f1(name, k, seed) for seed in range(1, 31 if k == 4 else 9)]
            x = at + 0.3 * beside + rng.uniform(-0.06, 0.06, len(f1))
            axes.scatter(x, f1, s=12, color=color, alpha=0.7, label=name if not at else None)
            axes.text(at + 0.3 * beside, 1.015, f"{np.mean(f1):.3f}", ha="center", fontsize=8)
    axes.set_xticks([0.15, 1.15], ["K=4, 30 runs", "K=8, 8 runs"])
    axes.set_ylim(0.6, 1.05)
    axes.set_ylabel("F1 of directed links (mean above)")
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    _save(figure, path)


def _f1(name: str, k: int, seed: int) -> float:
    from analysis.evaluation.metrics import score

    request = make_request(None, {"backend": "flow", "k": k, "seed": seed, "faults": "10pct"})
    settings = request.settings()
    layout = layout_of(settings, request.scenario)
    telemetry = read_telemetry(simulate(layout), "A1")
    found = make_method(name).localize(telemetry)
    return score(found.flagged, layout.plan.links, layout.fabric)["directed"].f1


def _figure() -> tuple[Any, Any]:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_all(folder: Path) -> None:
    """Draw the figures that are not in ``folder`` yet."""
    folder.mkdir(exist_ok=True)
    for name in AXES:
        if not (path := folder / f"{name}.png").exists():
            draw_method(name, path)
    for name, draw in {
        "mapping": draw_mapping,
        "objective": draw_objective,
        "small": draw_small,
    }.items():
        if not (path := folder / f"{name}.png").exists():
            draw(path)
