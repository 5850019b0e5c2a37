"""Markdown that is made when the site is built: tables of the code, and of the files in docs/data.

`MAKERS` names what a page may ask for with ``{made} NAME``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from scenarios.command import budgets
from scenarios.command.options import table_row
from scenarios.experiment.scenario import scenario_names
from scenarios.experiment.settings import described
from testbed.record.__main__ import render as render_record


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar within a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def options(source: Path) -> str:
    """Return the table of the settings of a run, with its three that are no settings."""
    names = ", ".join(f"`{name}`" for name in scenario_names() if name != "faulty_links")
    return "\n".join(
        [
            "| option | default | meaning |",
            "| --- | --- | --- |",
            f"| `SCENARIO` | `faulty_links` | {names}, or a `.py` file |",
            *(table_row(setting) for setting in described()),
            "| `CONFIG` | none | settings from a YAML file (`k: 8`), or of an earlier run, its "
            "`config.json`; what is given besides wins |",
            "| `RUN` | `runs/<time>-<scenario>` | directory of the run |",
        ]
    )


def record(source: Path) -> str:
    """Return the schema of a run's files."""
    return render_record()


def contract(source: Path) -> str:
    """Return what each measurement may send, store and install."""
    return budgets.render()


Maker = Callable[[Path], str]
MAKERS: Mapping[str, Maker] = {"options": options, "record": record, "contract": contract}
"""By name: what returns Markdown, given the folder of the site's sources."""
