"""Canary's tables III and IV: the methods' parameters, and what a switch takes of a Tofino."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from analysis.methods.canary.multistage import Canary
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer
from analysis.solvers.stages import n_stages
from scenarios.experiment.settings import Settings
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task
from scenarios.papers.segment_level import ALPHAS, PROBES

REPORT = Path(__file__).parents[2] / "p4" / "tofino" / "REPORT.md"
PARAMETER, UNITS, SHARE = "parameter", "units", "% of the chip"
NAMES = {
    "crossbar bytes": "Match crossbar",
    "gateways": "Gateway",
    "hash bits": "Hash bit",
    "stateful ALUs": "Stateful ALU",
    "SRAM": "SRAM",
    "TCAM": "TCAM",
    "logical tables": "Logical Table IDs",
}


def parameters() -> list[Row]:
    """What the experiments of figures 8 and 9 run with."""
    flock, settings = Flock.canary_table_iii(), Settings()
    prior = float(flock.link_prior or 0.0)
    ours = {
        ("NetBouncer", "probe packets"): PROBES,
        ("NetBouncer", "λ"): NetBouncer(penalty=1.0).penalty,
        ("Flock", "p_b"): flock.p_bad,
        ("Flock", "p_g"): flock.p_good,
        ("Flock", "ρ"): 1 / (1 + math.exp(-prior)),
        ("Canary", "λ"): Canary().penalty,
        ("Canary", "α, least"): min(ALPHAS),
        ("Canary", "α, most"): max(ALPHAS),
        ("Canary", "β"): settings.beta,
        ("Canary", "δ"): settings.delta,
        ("Canary", "η"): settings.eta,
        ("Canary", "groups"): n_stages(Canary().groups),
    }
    return [Row(PARAMETER, series, x, 0, float(value or 0)) for (series, x), value in ours.items()]


def resources() -> list[Row]:
    """The profiles' rows of the committed report, and their shares of the chip."""
    rows = []
    for line in REPORT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = NAMES.get(cells[0])
        if name is None or len(cells) != 5:
            continue
        for series, cell in zip(("transit switch", "monitor switch"), cells[1:3], strict=True):
            used, share = re.findall(r"[\d.]+", cell)
            rows.append(Row(UNITS, series, name, 0, float(used)))
            rows.append(Row(SHARE, series, name, 0, float(share)))
    return rows


def _once(work: Task, name: str, effort: Effort) -> Mapping[str, Task]:
    return {name: work}


TABLE_III = Experiment(
    "canary-table-3",
    "Canary, table III",
    "parameters of the methods in figures 8 and 9",
    "What canary-8 and canary-9 run with, read from the code that runs.",
    seconds=3,
    memory_mb=300,
    panels=(Panel(PARAMETER, "", "value", numeric=False, log_y=True),),
    tasks=partial(_once, parameters, "parameters"),
    reasons=(
        Reason(
            "As printed p_b = 1.0×10⁻⁴ is less than p_g = 2.5×10⁻⁴, and a bad path would lose less "
            "than a good one: the two are exchanged here.",
            PARAMETER,
            "Flock",
            ("p_b", "p_g"),
            (0.39, 2.51),
        ),
    ),
)
MORE = (
    "The paper's is its authors' public program, with indexed counters where its text has meters "
    "of flows, four HashPipe entries a stage, and neither ECMP nor parity. This is all of its text."
)
TABLE_IV = Experiment(
    "canary-table-4",
    "Canary, table IV",
    "what the switch program takes of a Tofino",
    "The monitor profile of p4/tofino, compiled by p4c's open Tofino backend, from the committed "
    "p4/tofino/REPORT.md (make -C p4 tofino-report writes it). It has not run on a chip. Line rate,"
    " figure 12's question, is answered by what fits the chip's 12 stages: all of it does.",
    seconds=3,
    memory_mb=300,
    panels=(
        Panel(UNITS, "", "units", numeric=False, log_y=True),
        Panel(SHARE, "", "% of the chip", numeric=False),
    ),
    tasks=partial(_once, resources, "report"),
    series={"Canary": ("monitor switch",)},
    reasons=tuple(
        Reason(MORE, quantity, "monitor switch", ratio=(1.0, 6.0)) for quantity in (UNITS, SHARE)
    ),
)
