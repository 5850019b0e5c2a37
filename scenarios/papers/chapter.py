# SPDX-License-Identifier: Apache-2.0
"""A chapter of a thesis from experiments that were run: tables, vector figures, and their data.

    main.tex, chapter.tex, refs.bib, figures/NAME-1.pdf
    data/NAME.csv              our means with intervals
    data/NAME-paper.csv        the paper's values beside ours, with verdicts
    data/NAME-paired.csv       differences between series, draw by draw
    data/NAME-parameters.csv   what the experiment was made with

Every number of `chapter.tex` is in one of the CSV files of its experiment.
"""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from analysis.evaluation.intervals import paired
from scenarios.extras import need_matplotlib
from scenarios.papers.experiment import Experiment, Panel
from scenarios.papers.pages import Reproduction
from scenarios.papers.reproduce import read_reproduction
from scenarios.papers.tables import number
from scenarios.papers.tex import REFERENCES, escaped
from testbed.errors import UserError
from testbed.fabric.names import command, plain
from testbed.record.atomic import atomic_write, need_no_links, output_file
from testbed.record.files import read_columns
from testbed.record.outputs import Kind, need_folder

WIDTH = 3.33
"""Inches of a column of a paper."""
MOST_ROWS = 30
"""The most rows of a table; the CSV file has all."""
_MADE = "made by canary chapter"
_APART = "\n\\clearpage  % no figure floats into the next section\n"
_LABEL = 24  # characters of an axis' label in a line: longer ones would be cut off
Cell = str | float
Rows = Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Table:
    """A table of numbers.

    Attributes:
        name: The name of its CSV file in ``data``, without the suffix.
        caption: What it shows.
        columns: The titles.
        rows: The cells; a number that is nan is undefined.
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: Rows


def write_chapter(experiments: Sequence[Experiment], runs: Path, out: Path) -> list[str]:
    """Write a chapter of experiments that were run, and return the names of its files.

    Args:
        experiments: What it is about, in this order.
        runs: The folder in which they were run.
        out: The folder of the chapter; one of an earlier chapter is written anew.

    Raises:
        UserError: An experiment was not run, or Matplotlib is missing (one line).
        FolderError: The folder, or a file in it, is not of an earlier chapter (one line).
    """
    need_matplotlib()
    need_folder(out, _is_chapter, "chapter", "--out")
    found = []
    for each in experiments:
        reproduction = read_reproduction(each, runs)
        if reproduction is None:
            again = command("make", "reproduce", f"FIG={each.name}")
            raise UserError(f"{runs} has no {each.name}: run {again} first")
        found.append((reproduction, runs / each.name / "results.parquet"))
    if out.exists():
        need_no_links(out)
    for folder in (out, out / "data", out / "figures"):
        folder.mkdir(parents=True, exist_ok=True)
    names, sections = [], []
    for reproduction, results in found:
        tables = tables_of(reproduction, read_columns(results))
        header = _header(reproduction, results)
        for table in tables:
            names.append(f"data/{table.name}.csv")
            _write(out / names[-1], f"# {_MADE}\n{header}{_as_csv(table)}")
        figures = [f"figures/{name}" for name in _draw(reproduction, out / "figures")]
        names += figures
        sections.append(_section(reproduction, tables, figures))
    texts = {"refs.bib": REFERENCES, "chapter.tex": _APART.join(sections), "main.tex": _MAIN}
    for name, text in texts.items():
        _write(out / name, f"% {_MADE}: \\input{{chapter}} into a thesis\n{text}")
    return [*texts, *names]


NO_PDF = "no PDF: there is neither tectonic nor latexmk; main.tex is its source"


def make_pdf(out: Path) -> Path | None:
    """Make ``main.pdf`` of a chapter and return its path; None if no program that makes PDFs is
    installed.

    Raises:
        UserError: The program failed (one line).
    """
    programs = {
        "tectonic": ["--untrusted", "main.tex"],
        "latexmk": ["-pdf", "-interaction=nonstopmode", "-norc", "main.tex"],
    }
    for program, arguments in programs.items():
        if path := shutil.which(program):
            done = subprocess.run([path, *arguments], cwd=out, capture_output=True, check=False)
            if done.returncode != 0:
                raise UserError(f"{program} failed: {out / 'main.log'} says why")
            return out / "main.pdf"
    return None


def _is_chapter(folder: Path) -> bool:
    return _is_ours(folder / "chapter.tex") if (folder / "chapter.tex").is_file() else False


def _is_ours(path: Path) -> bool:
    """Return whether a file's first line says that it was made by `write_chapter`."""
    with path.open("rb") as file:
        return file.read(2 + len(_MADE))[2:] == _MADE.encode()


_KIND = Kind("file of a chapter", "chapter.tex", _is_ours)


def _write(path: Path, text: str) -> None:
    with output_file(path, _KIND, "") as new:
        new.write_text(text, encoding="utf-8")


# ---- data ----------------------------------------------------------------------------------------


def _header(reproduction: Reproduction, results: Path) -> str:
    """Return what a CSV file says of its origin, as lines of comments."""
    name, draws = reproduction.experiment.name, reproduction.draws
    again = command("make", "reproduce", f"FIG={name}", f"DRAWS={draws}")
    facts = {
        "commit": reproduction.commit or "unknown",
        "code sha256": reproduction.setting["code_sha256"],
        "command": again,
        "seeds": f"draws 0 to {draws - 1}, each the seed of its random numbers",
        "data sha256": hashlib.sha256(results.read_bytes()).hexdigest(),
    }
    return "".join(f"# {what}: {plain(str(value))}\n" for what, value in facts.items())


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([repr(cell) if isinstance(cell, float) else cell for cell in row])
    return text.getvalue()


def tables_of(reproduction: Reproduction, rows: Mapping[str, Any]) -> list[Table]:
    """Return the tables of an experiment: ours, the paper's, the paired differences, and the
    parameters.

    Args:
        reproduction: The experiment.
        rows: The columns of `scenarios.papers.experiment.Row`.
    """
    name, paper = reproduction.experiment.name, reproduction.experiment.paper
    ours = [
        [*at, len(of.values), of.mean.mean, of.mean.low, of.mean.high]
        for at, of in reproduction.ours.items()
    ]
    printed = []
    for line in reproduction.lines:
        mean = line.ours.mean.mean if line.ours else np.nan
        value = [line.paper.value, float(mean)]
        printed.append([line.quantity, line.series, line.paper.x, *value, line.verdict])
    return [
        Table(
            name,
            "Means over the draws in which a value is defined, with 95 % intervals",
            ["quantity", "series", "x", "draws", "mean", "low", "high"],
            _by_quantity(ours),
        ),
        Table(
            f"{name}-paper",
            f"Values that the paper prints ({paper}), and ours",
            ["quantity", "series", "x", "paper", "ours", "verdict"],
            _by_quantity(printed),
        ),
        Table(
            f"{name}-paired",
            "Paired differences of series over the draws that both have, with Student's 95 % "
            "intervals",
            ["quantity", "x", "series", "less", "pairs", "difference", "low", "high"],
            _by_quantity(list(_paired(rows))),
        ),
        Table(
            f"{name}-parameters",
            "Parameters",
            ["parameter", "value"],
            [
                ["experiment", f"{paper}: {reproduction.experiment.shows}"],
                ["setting", reproduction.experiment.setting],
                ["draws", str(reproduction.draws)],
                ["interval", "95 %"],
                *[["figure", _title(panel)] for panel in reproduction.experiment.panels],
                *[["capture", str(value)] for name, value in reproduction.setting.items()
                  if name == "trace"],
            ],
        ),
    ]  # fmt: skip


def _by_quantity(rows: Rows) -> Rows:
    """Return rows with those of a quantity together, in the order of their first."""
    order = list(dict.fromkeys(row[0] for row in rows))
    return sorted(rows, key=lambda row: order.index(row[0]))


def _paired(rows: Mapping[str, Any]) -> Iterator[list[Cell]]:
    """Yield the difference between the first series and each other at the same quantity, x and
    draw, where they have two draws or more in common."""
    columns = (rows[name] for name in ("quantity", "x", "series", "draw", "value"))
    cells: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for quantity, x, series, draw, value in zip(*columns, strict=True):
        cells.setdefault((quantity, x), {}).setdefault(series, {})[int(draw)] = float(value)
    for (quantity, x), by_series in cells.items():
        first, *others = by_series
        for other in others:
            draws = sorted(by_series[first].keys() & by_series[other].keys())
            if len(draws) < 2:
                continue
            apart = [by_series[first][draw] - by_series[other][draw] for draw in draws]
            found = paired(apart)
            figures = [float(found.mean), float(found.low), float(found.high)]
            yield [quantity, x, first, other, len(draws), *figures]


# ---- figures and text ----------------------------------------------------------------------------


def _draw(reproduction: Reproduction, folder: Path) -> list[str]:
    """Draw each panel at the width of a column, as PDF, and return the names of the files."""
    from matplotlib.figure import Figure

    from analysis.evaluation.pictures import own_style, save
    from scenarios.papers.plot import draw_panel, legend, styles_of

    experiment, names = reproduction.experiment, []
    styles = styles_of(experiment, reproduction.ours)
    small = {"font.size": 8, "legend.fontsize": 7, "axes.labelsize": 8}
    for number_, panel in enumerate(experiment.panels, 1):
        names.append(f"{experiment.name}-{number_}.pdf")
        with own_style(names[-1], **small):
            figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
            axes = figure.subplots()
            draw_panel(axes, panel, experiment, reproduction.ours, styles)
            axes.set_ylabel(textwrap.fill(axes.get_ylabel(), _LABEL))
            handles = legend(experiment, reproduction.ours, styles)
            figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
            with atomic_write(folder / names[-1]) as new:
                save(figure, [new], 300)
    return names


def _section(reproduction: Reproduction, tables: Sequence[Table], figures: Sequence[str]) -> str:
    """Return the section of an experiment."""
    experiment = reproduction.experiment
    ours, printed, differences, _ = tables
    lines = [
        f"\\section{{{escaped(experiment.paper)}}}",
        f"{escaped(experiment.shows[0].upper() + experiment.shows[1:])} "
        f"\\cite{{{experiment.name.partition('-')[0]}}}. {escaped(experiment.setting)} "
        f"The figures are means over {reproduction.draws} draws.",
        "",
    ]
    for file, panel in zip(figures, experiment.panels, strict=True):
        lines += [
            "\\begin{figure}[htbp]\\centering",
            f"\\includegraphics{{{file}}}",
            f"\\caption{{{escaped(_title(panel))}: ours with intervals, and the paper's values.}}",
            "\\end{figure}",
        ]
    for table in (printed, ours, differences):
        if table.rows:
            lines += _tabular(table)
    return "\n".join(lines) + "\n"


def _title(panel: Panel) -> str:
    """Return what a figure shows."""
    title = f"{panel.y_axis} over {panel.x}" if panel.x else panel.y_axis
    return title[0].upper() + title[1:]


def _tabular(table: Table) -> list[str]:
    """Return a table of booktabs, with at most `MOST_ROWS` rows, under a heading each quantity."""
    columns = table.columns[1:]
    numeric = [any(isinstance(row[n], float | int) for row in table.rows)
               for n in range(1, len(table.columns))]  # fmt: skip
    lines = [
        "\\begin{table}[htbp]\\centering\\footnotesize",
        f"\\caption{{{escaped(table.caption)}.}}",
        f"\\begin{{tabular}}{{@{{}}{''.join('r' if each else 'l' for each in numeric)}@{{}}}}",
        "\\toprule",
        " & ".join(escaped(title) for title in columns) + " \\\\",
    ]
    for quantity, own in groupby(table.rows[:MOST_ROWS], key=lambda row: row[0]):
        lines += ["\\midrule", f"\\multicolumn{{{len(columns)}}}{{@{{}}l}}"
                  f"{{\\emph{{{escaped(str(quantity))}}}}} \\\\"]  # fmt: skip
        lines += [" & ".join(map(_cell, row[1:])) + " \\\\" for row in own]
    lines += ["\\bottomrule", "\\end{tabular}"]
    if len(table.rows) > MOST_ROWS:
        lines.append(f"\\par Further rows are in \\texttt{{data/{escaped(table.name)}.csv}}.")
    return [*lines, "\\end{table}"]


def _cell(cell: Cell) -> str:
    if isinstance(cell, float):
        return "--" if np.isnan(cell) else escaped(number(cell))
    return escaped(str(cell))


_MAIN = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{booktabs,graphicx,textcomp}
\begin{document}
\input{chapter}
\clearpage
\bibliographystyle{plain}
\bibliography{refs}
\end{document}
"""
