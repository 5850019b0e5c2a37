"""Canary's tables III and IV: the methods' parameters, and the resources of a Tofino that a switch
uses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from analysis.methods.canary import Canary
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer
from analysis.solvers.stages import n_stages
from scenarios.experiment.settings import Settings
from scenarios.papers.canary_localization import ALPHAS, PROBES
from scenarios.papers.experiment import Effort, Row, Task

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


def table_3(effort: Effort) -> Mapping[str, Task]:
    """Return the task that lists the parameters in table III."""
    return {"parameters": parameters}


def table_4(effort: Effort) -> Mapping[str, Task]:
    """Return the task that lists the resources in table IV."""
    return {"report": resources}


def parameters() -> list[Row]:
    """Return the parameters of the methods in the experiments of figures 8 and 9."""
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
    """Return the resources of each profile in the committed report, in units and in percent of the
    chip."""
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
