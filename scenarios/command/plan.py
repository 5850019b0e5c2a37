# SPDX-License-Identifier: Apache-2.0
"""``canary plan``: compares deTector's probe matrix of a fat-tree with simpler probing plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.fabric.fat_tree import FatTree
from testbed.fabric.probe_matrix.identifiability import PlanError
from testbed.fabric.probe_matrix.matrix import (
    MAX_BETA,
    ProbeMatrix,
    Speedups,
    probe_matrix,
    standard_matrix,
)
from testbed.record.files import columns_kind, write_columns

_PATIENCE = 1e9  # links to visit, about a minute; a slower way than that is not tried

WAYS = (
    ("plain greedy", Speedups(decomposition=False, lazy=False, symmetry=False)),
    ("+ decomposition", Speedups(lazy=False, symmetry=False)),
    ("+ lazy update", Speedups(symmetry=False)),
    ("+ symmetry", Speedups()),
)
"""Section 4.3's speed-ups, each added to those above it, as in the paper's comparison."""

PLAN = columns_kind("plan of probes", "paths.parquet", ("from", "turn", "to", "path"))


@dataclass(frozen=True)
class Timing:
    """The time in seconds and the number of paths of one way to plan; None if it was not tried."""

    way: str
    seconds: float | None
    paths: int | None


def make_plan(
    k: int, alpha: int, beta: int, progress: Callable[[str, float], None]
) -> tuple[ProbeMatrix, list[Timing]]:
    """Return the probe matrix of a fat-tree with ``k`` ports a switch, and the planning time in
    seconds with each set of speed-ups.

    Raises:
        ValueError: K, alpha or beta is wrong, or planning would take too long (one line).
    """
    topology = FatTree(k)
    progress("compiling", 0.0)
    standard_matrix(FatTree(4))
    progress("planning", 0.1)
    begin = time.perf_counter()
    matrix = probe_matrix(topology, alpha, beta)
    seconds = time.perf_counter() - begin
    timings = []
    for number, (name, how) in enumerate(WAYS[:-1]):
        progress(name, 0.2 + number / 4)
        if _work(matrix, how) > _PATIENCE:
            timings.append(Timing(name, None, None))
            continue
        begin = time.perf_counter()
        slower = probe_matrix(topology, alpha, beta, how)
        timings.append(Timing(name, time.perf_counter() - begin, len(slower)))
    return matrix, [*timings, Timing(WAYS[-1][0], seconds, len(matrix))]


def _work(matrix: ProbeMatrix, how: Speedups) -> float:
    """Return the approximate number of (virtual) links that a way to plan has to visit."""
    parts = max(matrix.n_parts, 1)
    if how.lazy:
        each = matrix.n_candidates * 4
    elif how.decomposition:
        each = matrix.n_candidates / parts * len(matrix) * 4
    else:
        each = matrix.n_candidates * len(matrix) * 4
    links = matrix.fabric.n_edges // (parts if how.decomposition else 1)
    virtual = links ** (matrix.beta - 1) if matrix.beta > 1 else 1
    return each * virtual


def write_plan(matrix: ProbeMatrix, path: Path) -> None:
    """Write the paths as Parquet, one direction of each: the names of the switches where it begins,
    turns and ends, and the ids of its links.

    Raises:
        testbed.record.outputs.FolderError: The path holds something else.
        testbed.record.schema.TableError: The file cannot be written.
    """
    names = matrix.fabric.switch_names
    columns = {
        name: [names[switch] for switch in switches.tolist()]
        for name, switches in (
            ("from", matrix.src_tor),
            ("turn", matrix.turn),
            ("to", matrix.dst_tor),
        )
    }
    write_columns(path, {**columns, "path": matrix.paths}, PLAN)


def plan_figures(matrix: ProbeMatrix) -> dict[str, Any]:
    """Return the figures of a plan, for programs."""
    coverage = matrix.coverage
    return {
        "fabric": matrix.fabric.title,
        "alpha": matrix.alpha,
        "beta": matrix.beta,
        "paths": len(matrix),
        "candidates": matrix.n_candidates,
        "coverage": {
            "min": int(coverage.min()),
            "mean": float(coverage.mean()),
            "max": int(coverage.max()),
        },
        "identifiability": _reached(matrix),
    }


def render_plan(matrix: ProbeMatrix, timings: list[Timing], console: Console) -> None:
    """Print the number of paths beside simpler plans, coverage, identifiability, and the time with
    each set of speed-ups."""
    if not console.is_terminal:
        console = Console(file=console.file, width=120)
    topology = matrix.fabric
    assert isinstance(topology, FatTree)
    console.print(
        Text.assemble(
            ("deTector's probe matrix", "bold"),
            f"  {topology.title}: {topology.n_edges:,} links, alpha={matrix.alpha}, "
            f"beta={matrix.beta}",
        )
    )
    console.print(_paths(matrix, topology))
    coverage, reached = matrix.coverage, _reached(matrix)
    console.print(
        Text.assemble(
            "paths over a link: ",
            (f"{coverage.min()} / {coverage.mean():.2f} / {coverage.max()}", "bold"),
            " (min / mean / max); identifiability ",
            (reached, "bold green" if int(reached[0]) >= matrix.beta else "bold red"),
        )
    )
    for short in _fallen_short(matrix, reached):
        console.print(Text(short, style="red"))
    console.print(
        f"{matrix.n_candidates:,} candidates in {matrix.n_parts} sub-problems, "
        f"{matrix.n_shapes} of them solved"
    )
    console.print(_times(timings))


def _paths(matrix: ProbeMatrix, topology: FatTree) -> Table:
    """Return a table with the number of paths of deTector's plan and of simpler ones."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False, header_style="bold")
    table.add_column("plan")
    table.add_column("paths", justify="right")
    table.add_column("of deTector's", justify="right")
    rows = [
        ("deTector", len(matrix)),
        ("every ToR to every core switch and back", topology.n_tors * topology.n_cores),
        (
            "every host to every core switch and back (NetBouncer)",
            topology.n_hosts * topology.n_cores,
        ),
        ("every path between every two ToRs", matrix.n_candidates),
    ]
    for name, paths in rows:
        share = f"{paths / max(len(matrix), 1):,.1f}x"
        table.add_row(name, f"{paths:,}", share, style="green" if name == "deTector" else "")
    return table


def _reached(matrix: ProbeMatrix) -> str:
    """Return the identifiability as text, as far as it can be counted; it begins with a digit."""
    reached, exact = 0, False
    for beta in range(1, MAX_BETA + 1):
        try:
            found = matrix.identifiability(beta)
        except PlanError:
            break
        exact = found < beta
        reached = max(found, 0)
        if exact:
            break
    return str(reached) if exact else f"{reached} or more"


def _fallen_short(matrix: ProbeMatrix, reached: str) -> list[str]:
    """Return a message for alpha and for beta if the matrix does not reach it; then no choice of
    candidate paths would."""
    coverage, found = matrix.coverage, []
    few = int((coverage < matrix.alpha).sum())
    if few:
        found.append(
            f"alpha={matrix.alpha} is not reached: {few:,} of {len(coverage):,} links are on fewer "
            f"paths; all {matrix.n_candidates:,} candidates have no more over them"
        )
    if reached.isdecimal() and int(reached) < matrix.beta:
        found.append(
            f"beta={matrix.beta} is not reached: with any choice of paths, some "
            f"{int(reached) + 1} links that fail together lose the same probes as others"
        )
    return found


def _times(timings: list[Timing]) -> Table:
    """Return a table with the planning time for each set of speed-ups."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False, header_style="bold")
    table.add_column("speed-ups")
    table.add_column("seconds", justify="right")
    table.add_column("paths", justify="right")
    for timing in timings:
        tried = timing.seconds is not None
        table.add_row(
            timing.way,
            f"{timing.seconds:.2f}" if tried else "not tried: long",
            f"{timing.paths:,}" if tried else "",
            style="" if tried else "dim",
        )
    return table
