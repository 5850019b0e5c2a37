"""Makes pages: of every run as it ends, and of an older one when asked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.methods.registry import METHODS
from analysis.pages.run_page import run_page
from analysis.pages.template import write_page
from scenarios.experiment import Progress
from scenarios.scenario import load_scenario, scenario_names
from scenarios.settings import Settings, described
from testbed.record.manifest import PAGE
from testbed.record.run import RunDirectory

__all__ = ["again", "make_page", "offer_page"]


def make_page(
    directory: Path,
    trust: bool = False,
    over_time: bool = False,
    progress: Progress = lambda what, share: None,
) -> Path:
    """Write the page of a run into its directory; where it is.

    Args:
        trust: Whether to show what was changed after the run, too.
        over_time: Also run methods on the first epochs where that takes a while.

    Raises:
        ValueError: There is no such run, or it is damaged (one line).
        OSError: The page cannot be written.
    """
    run = RunDirectory(directory, not directory.name.endswith(".partial"), trust)
    text = run_page(run, again(run.config, run.summary["methods"]), over_time, progress)
    write_page(directory / PAGE, text)
    return directory / PAGE


def offer_page(directory: Path) -> str:
    """The page of a run that has just ended: where it is, or why there is none, in a line."""
    try:
        return f"page: {make_page(directory, trust=True)}"
    except (ValueError, OSError) as error:  # the run is there without it
        return f"no page: {error}"


def again(config: Mapping[str, Any], methods: Mapping[str, Any]) -> str:
    """The command that makes a run again: what of its settings is not the default.

    Args:
        methods: The ``methods`` of its summary.
    """
    name = config["scenario"]
    own = load_scenario(name).defaults if name in scenario_names() else {}
    settings = {s.name: config[s.name] for s in described() if s.name in config}
    idle = Settings(**settings).ignored
    words = [f"SCENARIO={name if name in scenario_names() else name + '.py'}"]
    for setting in described():
        if setting.name not in config or setting.name in idle:
            continue
        value = config[setting.name]
        usual = setting.on.get(config["backend"], setting.default)
        if value != usual or setting.name in own or setting.name in ("k", "seed", "backend"):
            words.append(f"{setting.name.upper()}={value}")
    named = [
        method if _as_named(entry) else f"{method.partition(':')[0]}:{entry['parameters']}"
        for method, entry in methods.items()
    ]
    if named and named != list(METHODS):
        words.append(f"METHODS={','.join(named)}")
    return "make scenario " + " ".join(shlex.quote(word) for word in words)


def _as_named(entry: Mapping[str, Any]) -> bool:
    """Whether a method had no other parameters than its defaults and what its name says."""
    origin = entry.get("parameters_from", "default")
    return not entry.get("parameters") or origin in ("default", "default, as named")
