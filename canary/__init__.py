# SPDX-License-Identifier: Apache-2.0
"""The testbed from Python: run a scenario, load a run, compare, or diagnose other telemetry.

import canary

result = canary.run("faulty_links", k=4, seed=2)    # or canary.load("runs/...")
print(result)                                       # as `canary show` has it
result.figures                                      # a row a method
result.table("links")                               # any table of the run
result.diagnose("canary-mle").wrong                 # healthy links that it blames
result.links, result.verdicts                       # frames, by the name of a link
canary.compare(seeds=10, methods=["canary", "mle"]).paired()
canary.localize("fabric.csv", "observations.csv", "flock").blamed

with canary.net(k=4) as net:                        # real packets, as `make net`
    net.fault("agg0_1->core2", 0.05)
    print(net["h0_0_0"].cmd("ping -c 3 10.0.0.3"), net.diagnose("canary-mle"))

`Scenario`, `Settings`, `Fault`, `FaultPlan`, `FlowMatch` and `Ternary` are for scenarios of your
own; `Method`, `Diagnosis` and what a method is given (`Telemetry`, `SegmentCounts`, `Flows`,
`Probes`, with `Fabric`, `FatTree` and `Segments`) for methods of your own. These names stay from
version to version (docs/reference/api); the modules behind them may change, so import nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.methods.base import Method
    from analysis.methods.diagnosis import Diagnosis
    from analysis.telemetry.telemetry import Flows, Probes, SegmentCounts, Telemetry
    from scenarios.api import Run, Verdict, load, localize, run
    from scenarios.compared import Comparison, compare, load_comparison
    from scenarios.experiment.request import Scenario
    from scenarios.experiment.settings import Settings
    from scenarios.real_net import net
    from testbed.fabric.clos import Fabric
    from testbed.fabric.fat_tree import FatTree
    from testbed.fabric.segments import Segments
    from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary

__all__ = [
    "Comparison",
    "Diagnosis",
    "Fabric",
    "FatTree",
    "Fault",
    "FaultPlan",
    "FlowMatch",
    "Flows",
    "Method",
    "Probes",
    "Run",
    "Scenario",
    "SegmentCounts",
    "Segments",
    "Settings",
    "Telemetry",
    "Ternary",
    "Verdict",
    "compare",
    "load",
    "load_comparison",
    "localize",
    "net",
    "run",
]

_MODULES = {
    "analysis.methods.base": ("Method",),
    "analysis.methods.diagnosis": ("Diagnosis",),
    "analysis.telemetry.telemetry": ("Flows", "Probes", "SegmentCounts", "Telemetry"),
    "scenarios.api": ("Run", "Verdict", "load", "localize", "run"),
    "scenarios.compared": ("Comparison", "compare", "load_comparison"),
    "scenarios.experiment.request": ("Scenario",),
    "scenarios.experiment.settings": ("Settings",),
    "scenarios.real_net": ("net",),
    "testbed.fabric.clos": ("Fabric",),
    "testbed.fabric.fat_tree": ("FatTree",),
    "testbed.fabric.segments": ("Segments",),
    "testbed.faults.plan": ("Fault", "FaultPlan", "FlowMatch", "Ternary"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES = ("analysis", "scenarios", "testbed")


def _need_own_packages() -> None:
    """Check that the packages behind this one are found where this one is.

    Python looks into a script's own folder first: a file ``analysis.py`` or a folder ``scenarios``
    beside the script would be imported in their place.

    Raises:
        ImportError: Another file or folder has such a name (one line: which, and what to do).
    """
    for name in _PACKAGES:
        spec = find_spec(name)
        if spec is None:
            raise ImportError(
                f"canary is not whole: its package {name!r} is missing: install it anew"
            )
        places = [*(spec.submodule_search_locations or ()), spec.origin]
        found, own = Path(places[0] or name), Path(__file__).parents[1] / name
        if found.resolve() != own.resolve():
            raise ImportError(
                f"{found} hides the package {name!r} of canary: give it another name, or run "
                f"{Path(sys.executable).name} -P SCRIPT, which does not look beside the script"
            )


_need_own_packages()


def __getattr__(name: str) -> Any:
    """Import a name of this package when it is first used, so that ``import canary`` is quick."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names of this package, for completion."""
    return [*__all__]
