"""The testbed from Python: run a scenario or load a run, and what a scenario of one's own needs.

from scenarios import load, run

result = run("faulty_links", k=4, seed=2)       # or load("runs/...")
print(result)                                   # as `canary show` has it
result.figures                                  # a row a method
result.table("links")                           # any table of the run
result.diagnose("canary-mle").wrong             # healthy links that it blames

`Scenario`, `Settings`, `Fault` and `FaultPlan` are for a scenario's own file, which imports them
from here, so that the modules in which they are may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.api import Run, Verdict, load, run
    from scenarios.experiment.scenario import Scenario
    from scenarios.experiment.settings import Settings
    from testbed.faults.plan import Fault, FaultPlan

__all__ = ["Fault", "FaultPlan", "Run", "Scenario", "Settings", "Verdict", "load", "run"]

_MODULES = {
    "Fault": "testbed.faults.plan",
    "FaultPlan": "testbed.faults.plan",
    "Run": "scenarios.api",
    "Scenario": "scenarios.experiment.scenario",
    "Settings": "scenarios.experiment.settings",
    "Verdict": "scenarios.api",
    "load": "scenarios.api",
    "run": "scenarios.api",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: `canary --help` stays quick."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
