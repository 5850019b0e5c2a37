# SPDX-License-Identifier: Apache-2.0
"""The testbed from Python: run a scenario, load a run, compare, or diagnose other telemetry.

from scenarios import compare, load, localize, run

result = run("faulty_links", k=4, seed=2)       # or load("runs/...")
print(result)                                   # as `canary show` has it
result.figures                                  # a row a method
result.table("links")                           # any table of the run
result.diagnose("canary-mle").wrong             # healthy links that it blames
result.links, result.verdicts                   # frames, by the name of a link
compare(seeds=10, methods=["canary", "mle"]).paired()
localize("fabric.csv", "observations.csv", "flock").blamed

`Scenario`, `Settings`, `Fault`, `FaultPlan`, `FlowMatch` and `Ternary` are for scenarios of your
own, `Method` and `Diagnosis` for methods of your own. Import them from here: the modules in which
they are may change. ``docs/examples`` has a small program for each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.methods.base import Diagnosis, Method
    from scenarios.api import Run, Verdict, load, localize, run
    from scenarios.compared import Comparison, compare, load_comparison
    from scenarios.experiment.request import Scenario
    from scenarios.experiment.settings import Settings
    from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary

__all__ = [
    "Comparison",
    "Diagnosis",
    "Fault",
    "FaultPlan",
    "FlowMatch",
    "Method",
    "Run",
    "Scenario",
    "Settings",
    "Ternary",
    "Verdict",
    "compare",
    "load",
    "load_comparison",
    "localize",
    "run",
]

_MODULES = {
    "Comparison": "scenarios.compared",
    "Diagnosis": "analysis.methods.base",
    "Fault": "testbed.faults.plan",
    "FaultPlan": "testbed.faults.plan",
    "FlowMatch": "testbed.faults.plan",
    "Method": "analysis.methods.base",
    "Run": "scenarios.api",
    "Scenario": "scenarios.experiment.request",
    "Settings": "scenarios.experiment.settings",
    "Ternary": "testbed.faults.plan",
    "Verdict": "scenarios.api",
    "compare": "scenarios.compared",
    "load": "scenarios.api",
    "load_comparison": "scenarios.compared",
    "localize": "scenarios.api",
    "run": "scenarios.api",
}


def __getattr__(name: str) -> Any:
    """Import a name of this package when it is first used, so that `canary --help` stays quick."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
