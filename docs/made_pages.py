# SPDX-License-Identifier: Apache-2.0
"""Makes the Markdown of parts of pages: tables of the code, and of the files in docs/data.

`MAKERS` names what stands between the comments ``made: NAME``, or ``made: NAME ARGUMENT``, and
``end of NAME`` on a page. ``python -m tests.docs.made`` writes it, and a test compares.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.importers.registry import render as render_importers
from analysis.methods.variants import split
from scenarios.command import budgets
from scenarios.command.options import table_row
from scenarios.experiment.request import scenario_names
from scenarios.experiment.settings import described
from scenarios.papers.registry import EXPERIMENTS, LEFT_OUT
from scenarios.papers.tables import HEAD
from testbed.record.__main__ import render as render_record
from tests.studies.changes import changes

DATA = Path(__file__).parent / "data"
Row = dict[str, str]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar within a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def rows_of(name: str) -> list[Row]:
    """Return the rows of a CSV file of docs/data."""
    with (DATA / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def systems() -> str:
    """Return what ran on which systems, as the jobs that ran it noted (`tests/systems.py`)."""
    head = ("system", "processor", "Python", "compiler", "user", "what ran", "", "commit", "date")
    shown = [{**row, "what": f"`{row['what']}`"} for row in rows_of("systems")]
    return table(head, (list(row.values()) for row in shown))


# ---- of the code ---------------------------------------------------------------------------------


def options() -> str:
    """Return the table of the settings of a run, with the three that are no settings."""
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


def record() -> str:
    """Return the schema of a run's files."""
    return render_record()


def importers() -> str:
    """Return what `canary import` reads, with a small file of each format."""
    return render_importers()


def contract() -> str:
    """Return what each measurement may send, store and install."""
    return budgets.render()


def differences(whose: str) -> str:
    """Return the changes of published methods: ``project`` has this project's, ``others`` what a
    paper compares its method with or its authors' code does."""
    rows = [
        (
            f"`{name}+{c.name}`",
            *((c.whose,) if whose == "others" else ()),
            f"{name}, {c.section}",
            c.printed,
            c.ours,
            c.why,
        )
        for name, c in changes()
        if (c.whose == "this project") == (whose == "project")
    ]
    of = ("whose",) if whose == "others" else ()
    return table(("variant", *of, "where", "the paper says", "the variant does", "why"), rows)


# ---- of docs/data --------------------------------------------------------------------------------


def _pivot(
    rows: Iterable[Row], lines: Sequence[str], column: str, cell: Callable[[Row], str]
) -> str:
    """Return a table: a line for each value of ``lines``, a column for each of ``column``."""
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    columns: dict[str, None] = {}
    for row in rows:
        columns[row[column]] = None
        cells.setdefault(tuple(row[name] for name in lines), {})[row[column]] = cell(row)
    body = [(*line, *(of.get(name, "") for name in columns)) for line, of in cells.items()]
    return table((*lines, *columns), body)


def effects() -> str:
    """Return F1 and false alarms of each variant, by kind of fault and K."""
    rows = rows_of("changes")
    together: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        together.setdefault((row["method"], row["world"]), []).append(row["figure"])
    long = [
        {"method": f"`{method}`", "world": world, "figures": ", ".join(figures)}
        for (method, world), figures in together.items()
    ]
    return _pivot(long, ("method",), "world", lambda row: row["figures"])


def healthy() -> str:
    """Return the healthy links that each method blames, and who blames none."""
    rows = rows_of("healthy")
    whose = {f"{name}+{change.name}": change.whose for name, change in changes()}
    blamed: dict[str, list[int]] = {}
    for row in rows:
        blamed.setdefault(row["method"], []).append(int(row["blamed"]))
    columns = list(dict.fromkeys(f"{row['fabric']}, {row['noise']}" for row in rows))
    body = []
    for name, links in blamed.items():
        if any(links):
            of = blamed[split(name)[0]]
            cells = (f"**{n}**" if n > most else str(n) for n, most in zip(links, of, strict=True))
            own = whose.get(name, "this project" if "+" in name else "published")
            body.append((f"`{name}`", own, *cells))
    silent = ", ".join(f"`{name}`" for name, links in blamed.items() if not any(links))
    shown = table(("method", "whose", *columns), body)
    return f"{shown}\n\nThese methods blame no link in any run: {silent}."


def probes() -> str:
    """Return F1 of `mle` by the number of probes a path."""
    head = ("K", "plan", "probes a path", "F1", "worst F1", "missed", "wrong", "packets")
    return table(head, [tuple(row.values()) for row in rows_of("probes")])


def comparison() -> str:
    """Return how well each method does, a section for each kind of fault."""
    return _by_part(
        rows_of("comparison"),
        ("telemetry", "method", "parameters"),
        lambda row: f"{row['f1']}, {row['wrong']}, {row['seconds']} s" + _some(row),
    )


def _some(row: Row) -> str:
    return f" ({row['runs']} of {row['of']} runs)" if row["runs"] else ""


def beside_mle() -> str:
    """Return F1 of `mle` less that of the best other method, a section for each kind of fault."""
    return _by_part(
        rows_of("beside_mle"),
        ("telemetry",),
        lambda row: f"{row['difference']} ± {row['error']} ({row['method']})",
    )


def _by_part(rows: Sequence[Row], lines: Sequence[str], cell: Callable[[Row], str]) -> str:
    parts = dict.fromkeys(row["part"] for row in rows)
    return "\n\n".join(
        f"### {part}\n\n" + _pivot((r for r in rows if r["part"] == part), lines, "column", cell)
        for part in parts
    )


def traces() -> str:
    """Return F1 on traces of Flock's simulation."""
    return _pivot(rows_of("traces"), ("telemetry", "method", "parameters"), "class", _trace)


def _trace(row: Row) -> str:
    if row["traces"]:
        return f"{row['alarms']} of {row['traces']}"
    p, r = float(row["precision"]), float(row["recall"])
    f1 = 2 * p * r / (p + r) if p + r else 0.0
    return f"{f1:.3f} ({row['precision']}, {row['recall']}), {row['seconds']} s"


# ---- the papers' figures -------------------------------------------------------------------------


def _results() -> Mapping[str, Any]:
    return json.loads((DATA / "results.json").read_text(encoding="utf-8"))


def reproduced() -> str:
    """Return the list of all experiments with their verdicts, and what is left out."""
    found, count = _results(), Counter[str]()
    rows = []
    for name, experiment in EXPERIMENTS.items():
        if name not in found:
            rows.append((name, f"{experiment.paper}: {experiment.shows}", "not run", "", ""))
            continue
        of = found[name]
        verdicts = Counter(line[4] for line in of["lines"])
        count += verdicts
        said = ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items()))
        link = f"[{name}](results_{_paper(name)}.md#{name.replace('.', '')})"
        shown = (said or "nothing printed", str(of["draws"]), f"{of['seconds']:,}")
        rows.append((link, f"{experiment.paper}: {experiment.shows}", *shown))
    hours = sum(of["seconds"] for of in found.values()) / 3600
    total = ", ".join(f"{n} {verdict}" for verdict, n in count.most_common())
    return "\n".join(
        [
            f"In all: {total}; {hours:.1f} hours of one processor.",
            "",
            table(("experiment", "shows", "verdicts", "draws", "seconds"), rows),
            "",
            "## What is left out",
            "",
            *(f"- {what}: {why}." for what, why in LEFT_OUT.items()),
        ]
    )


def results(paper: str) -> str:
    """Return the results of the experiments of one paper, a section each."""
    return "\n\n".join(
        "\n".join(_experiment(name, of)) for name, of in _results().items() if _paper(name) == paper
    )


def _paper(experiment: str) -> str:
    return experiment.partition("-")[0]


def _experiment(name: str, of: Mapping[str, Any]) -> Iterator[str]:
    experiment = EXPERIMENTS[name]
    yield f"## {name}\n\n{experiment.paper}: {experiment.shows}.\n"
    yield f"{experiment.setting}\n"
    yield f"Run with {of['draws']} draws in {of['seconds']:,} s, code {of['code']}.\n"
    rows = [(*line[:5], f"({line[5] + 1})" if line[5] >= 0 else "") for line in of["lines"]]
    if rows:
        yield table(HEAD, rows)
        yield "\nReasons:\n"
        yield from (f"{number}. {reason}" for number, reason in enumerate(of["reasons"], 1))


MAKERS: Mapping[str, Callable[..., str]] = {
    maker.__name__: maker
    for maker in (
        *(options, record, importers, contract, differences, effects, healthy, probes, comparison),
        *(beside_mle, traces, reproduced, results, systems),
    )
}
"""By name: what returns Markdown, given the words behind the name as arguments."""
