"""All experiments: the list in the terminal, and a page with the results of those that were run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.table import Table
from rich.text import Text

from scenarios.papers.pages import Reproduction
from scenarios.papers.registry import EXPERIMENTS, LEFT_OUT
from scenarios.papers.reproduce import OUT, read_reproduction, was_run
from scenarios.papers.tables import markdown_rows, new_table, summary
from testbed.record.atomic import atomic_write

HEAD = """# The papers' figures, reproduced

Made by `make reproduce FIG=all` (with `DRAWS=` where fewer than 20 draws are said) and
`make reproduce RESULTS=docs/papers/results.md`. Each value that a paper prints is held
against ours: *agrees*, *explained* (the reason beside it holds
for that difference), *not explained*, *cannot be compared*. Verdicts are computed; 20 draws are
seeds 0 to 19; seconds are of one processor; code is the commit, with a + if the sources differed
from it, and how their SHA-256 begins."""


def experiment_table(out: Path) -> Table:
    """Return the list for the terminal: what each experiment shows and takes, whether it was run;
    then what is left out."""
    table = new_table("name", "shows", "time", "memory", "run")
    for each in EXPERIMENTS.values():
        time = f"{each.seconds} s" if each.seconds < 90 else f"{round(each.seconds / 60)} min"
        run = "yes" if was_run(each, out) else ""
        table.add_row(each.name, f"{each.paper}: {each.shows}", time, f"{each.memory_mb} MB", run)
    for what, why in LEFT_OUT.items():
        table.add_row(Text("–", style="dim"), Text(f"{what}: {why}", style="dim"), "", "", "")
    return table


def write_results(path: Path, out: Path = OUT) -> None:
    """Write the page of the experiments in ``out``, which names those that were not run."""
    there = {name: read_reproduction(each, out) for name, each in EXPERIMENTS.items()}
    text = [HEAD, "", "| figure | shows | verdicts | draws | seconds | code |"]
    text.append("| --- | --- | --- | ---: | ---: | --- |")
    text += [_row(name, of) for name, of in there.items()]
    count = Counter(line.verdict for of in there.values() if of for line in of.lines)
    hours = sum(of.seconds for of in there.values() if of) / 3600
    said = ", ".join(f"{n} {verdict}" for verdict, n in count.most_common())
    text += ["", f"In all: {said}; {hours:.1f} hours of one processor."]
    text += ["", "Left out:", ""]
    text += [f"- {what}: {why}." for what, why in LEFT_OUT.items()]
    for name, of in there.items():
        if of is not None:
            experiment = EXPERIMENTS[name]
            text += ["", f"## {name}", "", f"{experiment.paper}: {experiment.shows}.", ""]
            text += [experiment.setting, "", *markdown_rows(of.lines)]
    with atomic_write(path) as new:
        new.write_text("\n".join(text) + "\n", encoding="utf-8")


def _row(name: str, of: Reproduction | None) -> str:
    experiment = EXPERIMENTS[name]
    shows = f"{experiment.paper}: {experiment.shows}"
    if of is None:
        return f"| {name} | {shows} | not run | | | |"
    said = summary(of.lines) + (f" (with {of.setting['trace']})" if "trace" in of.setting else "")
    code = f"{of.commit} {of.setting['code_sha256'][:8]}".strip()
    return f"| {name} | {shows} | {said} | {of.draws} | {of.seconds:,.0f} | {code} |"
