"""A comparison as `scenarios.many.compare` left it: read again, and told in a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, ValidationError
from rich.console import Console

from analysis.evaluation.comparison import (
    COLUMNS,
    MEANS,
    chosen,
    comparison_cells,
    comparison_table,
    defined,
    in_short,
    method_names,
    origins,
)
from analysis.evaluation.report import parameters_line
from scenarios.experiment.settings import Settings, described
from scenarios.experiment.terminal import line
from scenarios.many.compare import SETTINGS_FILE, check_rows
from testbed.fabric.names import plain, shortened
from testbed.record.columns import read_columns
from testbed.record.messages import first_problem
from testbed.record.run import RunError


@dataclass(frozen=True)
class Compared:
    """A comparison's rows (`analysis.evaluation.comparison.COLUMNS`), and what decided them: the
    content of ``comparison.json``."""

    folder: Path
    rows: Mapping[str, Any]
    key: Mapping[str, Any]

    @property
    def seeds(self) -> list[int]:
        return sorted(set(np.asarray(self.rows["seed"]).tolist()))


class _Parameters(BaseModel):
    """What a method had."""

    values: str
    origin: str = Field(alias="from")


class _Key(BaseModel):
    """What is read of ``comparison.json`` besides the settings."""

    scenario: str
    backend: str
    parameters: dict[str, _Parameters]


def is_comparison(folder: Path) -> bool:
    """Whether it is the folder of a comparison, and not of a run."""
    return (folder / SETTINGS_FILE).is_file()


def read_comparison(folder: Path) -> Compared:
    """What ended in ``folder``.

    Raises:
        RunError: No seed has ended, or ``comparison.json`` is damaged.
        TableError: ``results.parquet`` is damaged or another table.
    """
    results = folder / "results.parquet"
    if not results.is_file():
        raise RunError(f"{folder} has no results yet: let the same canary compare go on to its end")
    rows = read_columns(results)
    check_rows(results, rows, "canary compare", "the same command writes it anew")
    file = folder / SETTINGS_FILE
    try:
        key = json.loads(file.read_bytes())
        _Key.model_validate(key)
        Settings(**{s.name: key[s.name] for s in described() if s.name in key})
    except ValidationError as error:
        place, reason = first_problem(error)
        where = ".".join(str(part) for part in place)
        said = shortened(plain(f"{where}: {reason}"))
        raise RunError(f"{file} is damaged: {said}: make the comparison again") from None
    except (OSError, ValueError, RecursionError):
        raise RunError(f"{file} is damaged: make the comparison again") from None
    return Compared(folder, rows, key)


def tell(rows: Mapping[str, Any], console: Console) -> None:
    """Print the table, what it is of, and the parameters that methods had."""
    console.print(comparison_table(rows), width=min(console.width, 80))
    for text in (*in_short(rows).split("\n"), parameters_line(origins(rows))):
        console.print(line(text, "dim"), soft_wrap=True)


def as_json(found: Compared) -> dict[str, Any]:
    """The figures for programs: the means by method, and a row for each seed and method."""
    names = [name for name in COLUMNS if name != "found_at"]
    columns = [np.asarray(found.rows[name]).tolist() for name in names]
    at = names.index("precision")
    columns[at] = [None if value != value else value for value in columns[at]]  # JSON has no nan
    blaming = {
        plain(name): len(defined(chosen(found.rows, name)["precision"]))
        for name in method_names(found.rows)
    }
    return {
        "settings": dict(found.key),
        "means": {
            row[0].value: {
                column.title: cell.value for column, cell in zip(MEANS[1:], row[1:], strict=True)
            }
            | {"runs with precision": blaming[str(row[0].value)]}
            for block in comparison_cells(found.rows).values()
            for row in block
        },
        "rows": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
    }
