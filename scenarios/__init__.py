"""What is emulated: settings, scenarios, the epoch loop, the command line; and `run` and `load`.

from scenarios import load, run

result = run("faulty_links", k=4, seed=2)       # or load("runs/...")
print(result)                                   # as `canary show` has it
result.figures                                  # a row a method
result.table("links")                           # any table of the run
result.diagnose("canary-mle").wrong             # healthy links that it blames
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scenarios.api import Run, Verdict, load, run

__all__ = ["Run", "Verdict", "load", "run"]


def __getattr__(name: str) -> Any:
    """What is in `scenarios.api`, imported when it is asked for: `canary --help` stays quick."""
    if name in __all__:
        from scenarios import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
