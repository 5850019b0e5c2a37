# SPDX-License-Identifier: Apache-2.0
"""What the paths of flows buy Flock: `python -m tests.studies int`, as a table of Markdown.

Each telemetry of Flock's section 6.2 is read from the same packets, with 10 % of the links faulty:
with the default parameters, and with those that Flock's authors ship for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from canary import run
from testbed.record.run import RunDirectory

INPUTS = {"A1": "probes", "A2+P": "flows", "A1+A2+P": "probes+flows", "INT": "int"}
SHIPPED = {"A1+A2+P": "p_bad=0.002,p_good=0.0003", "INT": "p_bad=0.003,p_good=0.0002"}
"""Parameters of netarch/FaultLocalization; its prior of a link, -15, is the default here."""
SEEDS = range(1, 4)


def named() -> dict[str, tuple[str, str, str]]:
    """Return the method, the telemetry and the parameters of each diagnosis, by its name."""
    found = {}
    for search in ("flock", "flock+links"):
        for kind, inputs in INPUTS.items():
            found[f"{search}:inputs={inputs}"] = search, kind, "default"
        for kind, values in SHIPPED.items():
            name = f"{search}:inputs={INPUTS[kind]},{values}"
            found[name] = search, kind, "authors'"
    return found


def print_int(console: Console) -> None:
    """Print what Flock finds from each telemetry."""
    console.print("| K | method | telemetry | parameters | F1 | missed | wrong | records |")
    console.print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for k in (4, 8):
        rows: dict[str, list[list[float]]] = {name: [] for name in named()}
        known = []
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                run(
                    path=Path(folder) / "run",
                    methods=",".join(named()),
                    k=k,
                    seed=seed,
                    faults="10pct",
                )
                record = RunDirectory(Path(folder) / "run")
                summary: Any = record.summary
                flows, paths = record.table("flows"), record.table("int_paths")
                between = (flows["src_tor"] != flows["dst_tor"]) & (flows["sent"] > 0)
                known.append(len(np.unique(paths["flow"])) / between.sum())
            for name, found in rows.items():
                entry = summary["methods"][name]
                one = entry["directed"] or entry["undirected"]
                missed, wrong = one["false_negatives"], one["false_positives"]
                found.append([one["f1"], missed, wrong, entry["telemetry_bytes"]])
        for name, found in rows.items():
            f1, missed, wrong, size = np.mean(found, axis=0)
            method, kind, values = named()[name]
            console.print(
                f"| {k} | `{method}` | {kind} | {values} | {f1:.3f} | {missed:.1f} | {wrong:.1f} "
                f"| {size / 1e3:,.0f} KB |",
                soft_wrap=True,
            )
        console.print(f"K={k}: the path of {np.mean(known):.1%} of the flows is known")
