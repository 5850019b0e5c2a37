# SPDX-License-Identifier: Apache-2.0
"""Sweeps: a comparison for each value of one setting, such as ``SWEEP=K=4,8,16``.

Each comparison has its own folder, written by `scenarios.many.compare`, and can be continued. This
module runs them in turn and reads them together.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.experiment.observer import Progress
from scenarios.experiment.settings import Settings, SettingsError, described
from scenarios.many.compare import Compared, default_folder, is_comparison, read_comparison
from scenarios.many.work import hold_folder, is_of
from testbed.fabric.names import nearest
from testbed.record.bounded import read_json
from testbed.record.run import RunError

SWEEP_FILE = "sweep.json"
_NOT = ("seed", "threads")
_MOST = 100


@dataclass(frozen=True)
class Sweep:
    """A sweep: the comparisons in ``parts``, which differ in one setting, in the order of its
    values."""

    folder: Path
    setting: str
    values: list[str]
    parts: list[Compared]


def parse_sweep(text: str) -> tuple[str, list[str]]:
    """Return the setting and the values of a text such as ``K=4,8``; values that contain commas are
    separated by ``;``.

    Raises:
        SettingsError: There is no such setting, or there are no two values (one line).
    """
    name, _, rest = text.partition("=")
    name = name.strip().lower()
    known = [setting.name for setting in described() if setting.name not in _NOT]
    if name in _NOT:
        raise SettingsError(f"SWEEP={text}: use SEEDS= for seeds; THREADS changes no figure")
    if name not in known:
        others = nearest(name.upper(), [each.upper() for each in known])
        raise SettingsError(
            f"SWEEP={text}: write SWEEP=K=4,8,16; {name.upper()} is not a setting: {others}"
        )
    values = [value.strip() for value in rest.split(";" if ";" in rest else ",")]
    if "" in values or len(set(values)) < len(values) or not 2 <= len(values) <= _MOST:
        raise SettingsError(
            f"SWEEP={text}: give 2 to {_MOST} values, each once: SWEEP=K=4,8,16, or with ; between "
            "values that have commas"
        )
    return name, values


def folder_of(setting: str, value: str) -> str:
    """Return the name of the folder of a value, such as ``K=4``."""
    safe = re.sub(r"[^A-Za-z0-9.:%+-]", "_", value)[:80]
    if safe != value:
        safe += f"-{hashlib.sha256(value.encode()).hexdigest()[:8]}"
    return f"{setting.upper()}={safe}"


def sweep_folder(name: str, setting: str, first: Settings, *rest: Any) -> Path:
    """Return the path ``runs/sweep-<scenario>-<setting>-<key>``; the key is that of the first
    comparison."""
    key = default_folder(name, first, *rest).name.rpartition("-")[2]
    return Path("runs") / f"sweep-{Path(name).stem}-{setting}-{key}"


def run_sweep(
    setting: str,
    values: Sequence[str],
    folder: Path,
    compare: Callable[[str, Path, Progress], Mapping[int, str]],
    progress: Progress,
) -> dict[tuple[str, int], str]:
    """Run the comparison of each value; return why seeds failed, by value and number of the seed.

    Args:
        compare: Runs the comparison of a value in a folder, and returns why seeds failed.

    Raises:
        RunError: ``folder`` holds something else, or another command uses it.
    """
    failures: dict[tuple[str, int], str] = {}

    def is_key(content: Mapping[str, Any]) -> bool:
        """Return True if this is the content of the file `SWEEP_FILE` of some sweep."""
        return list(content) == ["setting"] and isinstance(content["setting"], str)

    with hold_folder(folder, SWEEP_FILE, "sweep", is_key) as file:
        if not is_of(file, {"setting": setting}):
            raise RunError(f"{folder} holds a sweep of another setting: choose another")
        for number, value in enumerate(values):

            def report_progress(
                what: str, share: float, number: int = number, value: str = value
            ) -> None:
                """Report the share of the sweep that is done, 0 to 1, from that of one value."""
                progress(f"{setting.upper()}={value}: {what}", (number + share) / len(values))

            failed = compare(value, folder / folder_of(setting, value), report_progress)
            failures |= {(value, seed): reason for seed, reason in failed.items()}
    return failures


def is_sweep(folder: Path) -> bool:
    """Return True if a folder holds a sweep."""
    return (folder / SWEEP_FILE).is_file()


def read_sweep(folder: Path) -> Sweep:
    """Return the sweep in ``folder``, with all comparisons that have ended.

    Raises:
        RunError: No comparison has ended, or a file is damaged.
    """
    begun = [path for path in sorted(folder.iterdir()) if path.is_dir() and is_comparison(path)]
    parts = [read_comparison(path) for path in begun if (path / "results.parquet").is_file()]
    try:
        setting = read_json(folder / SWEEP_FILE)["setting"]
    except (ValueError, KeyError, TypeError, OSError):
        raise RunError(f"{folder / SWEEP_FILE} is damaged: make the sweep again") from None
    if not parts or any(setting not in part.key for part in parts):
        raise RunError(f"{folder} has no results yet: let the same canary compare go on to its end")
    parts.sort(key=lambda part: _order(str(part.key[setting])))
    return Sweep(folder, setting, [str(part.key[setting]) for part in parts], parts)


def _order(value: str) -> tuple[float, str]:
    """Return the sort key of a value: numbers ascending, then texts."""
    try:
        return float(value), ""
    except ValueError:
        return float("inf"), value
