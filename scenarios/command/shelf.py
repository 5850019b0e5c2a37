# SPDX-License-Identifier: Apache-2.0
"""What a folder holds: runs, comparisons and reproductions, as a page of links to their pages.

Runs may be a stranger's. Nothing is written, no link is followed, and pages are made from the data:
the ``index.html`` that lies in a folder is never sent.
"""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from rich.console import Console

from analysis.evaluation.comparison import chosen, good_seeds, mean_of, method_names
from analysis.pages.run_page import files
from analysis.pages.template import render_page
from scenarios.command.book import RUN_TITLES, difference, list_runs, run_cells, run_figures
from scenarios.command.book import show_difference as print_difference
from scenarios.command.show import kind_of, page_text, title_of
from scenarios.experiment.errors import message_of
from scenarios.many.compare import read_comparison
from scenarios.many.sweep import read_sweep
from scenarios.papers.pages import SIGNS, overview
from scenarios.papers.reproduce import reproduction_in
from testbed.errors import UserError
from testbed.fabric.names import plain
from testbed.record.atomic import need_no_links
from testbed.record.run import RunDirectory

_UNKNOWN = "–"
_DEEPEST = 3
"""Folders between the shelf's and a page: ``reproduce/canary-8``, or a sweep's ``K=4``."""
_WIDE = 110
_PAGES_KEPT = 8


class Shelf:
    """The runs, comparisons and reproductions in a folder.

    Args:
        folder: The folder, usually ``runs``.

    Raises:
        UserError: There is no such folder (one line).
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder}: canary run makes the first run in runs")
        self.folder = folder
        self._pages: dict[tuple[Path, int], str] = {}
        self._making = threading.Lock()  # one page at a time: some need most of the memory

    def page(self) -> str:
        """Return the page that lists everything, as it is now."""
        runs, unreadable = list_runs(self.folder, {})
        comparisons, reproductions = [], []
        for path in self._folders():
            try:
                kind = kind_of(path)
                if kind:
                    need_no_links(path)
                if kind in ("comparison", "sweep"):
                    comparisons.append(self._compared(path, kind))
                elif kind == "reproduction":
                    reproductions.append(overview(reproduction_in(path), self._address(path)))
            except (UserError, ValueError, OSError) as error:
                unreadable.append(message_of(error))
                runs = [run for run in runs if run.path != path]
        return render_page(
            "shelf.html",
            ("page.css", "comparison.css", "reproduction.css", "shelf.css"),
            ("page.js", "series.js", "panels.js", "shelf.js"),
            {"figures": [each["figure"] for each in reproductions]},
            title=f"Runs in {plain(self.folder.absolute().name)}",
            folder=plain(str(self.folder)),
            titles=[_UPPER.get(title, title) for title in RUN_TITLES],
            runs=[self._run(run) for run in runs if not run.path.name.startswith(".")],
            comparisons=comparisons,
            reproductions=reproductions,
            signs=[(sign, verdict) for verdict, sign in SIGNS.items()],
            unreadable=[plain(why) for why in unreadable],
        )

    def page_of(self, address: str) -> str:
        """Return the page of a run, comparison, sweep or reproduction, made from its data; of a
        folder in one of them, such as ``registers``, the list of its files.

        Args:
            address: Its folder, relative to the shelf's, with ``/`` between names.

        Raises:
            FileNotFoundError: There is no such thing.
            UserError: It is damaged, or has a symbolic link in it (one line).
        """
        path = self._path(address)
        if not kind_of(path):
            self._need_inside(address)
            return render_page(
                "folder.html",
                ("page.css",),
                ("page.js",),
                {},
                title=plain(path.name),
                above=plain(path.parent.name),
                files=files(path),
            )
        need_no_links(path)
        key = path, max(each.lstat().st_mtime_ns for each in (path, *path.iterdir()))
        with self._making:
            if key not in self._pages:
                while len(self._pages) >= _PAGES_KEPT:
                    del self._pages[next(iter(self._pages))]
                self._pages[key] = page_text(path)
            return self._pages[key]

    def difference_of(self, one: str, other: str) -> str:
        """Return the page that says what differs between two runs. Arguments and errors are as of
        `page_of`."""
        paths = [self._path(each) for each in (one, other)]
        for path in paths:
            if kind_of(path) != "run":
                raise FileNotFoundError(str(path))
            need_no_links(path)
        console = Console(width=_WIDE, record=True, force_terminal=True, file=io.StringIO())
        with self._making:
            print_difference(difference(*(RunDirectory(path) for path in paths)), console)
        return render_page(
            "difference.html",
            ("page.css", "shelf.css"),
            ("page.js",),
            {},
            title="The difference of two runs",
            text=console.export_text(),
        )

    def file(self, address: str) -> BinaryIO:
        """Return a file of a run, comparison, sweep or reproduction, open for reading.

        Args:
            address: The file, relative to the shelf's folder, with ``/`` between names.

        Raises:
            FileNotFoundError: There is no such file, or it is no regular file of such a folder.
        """
        self._need_inside(address)
        opened = _open(self.folder, _names(address), os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise FileNotFoundError(address)
        return os.fdopen(opened, "rb")

    def _need_inside(self, address: str) -> None:
        """Check that something is in a run, comparison, sweep or reproduction.

        Raises:
            FileNotFoundError: It is not.
        """
        while address := address.rpartition("/")[0]:
            if kind_of(self._path(address)):
                return
        raise FileNotFoundError(address)

    def _path(self, address: str) -> Path:
        """Return the path of a folder below the shelf's.

        Raises:
            FileNotFoundError: There is none, or one of the names is a link.
        """
        names = _names(address)
        if len(names) > _DEEPEST:
            raise FileNotFoundError(address)
        os.close(_open(self.folder, names, os.O_RDONLY | os.O_DIRECTORY))
        return self.folder.joinpath(*names)

    def _folders(self) -> Iterator[Path]:
        """Yield the folders in the shelf's, and those in folders that hold nothing themselves, such
        as ``reproduce``, in order."""
        for path in _below(self.folder):
            yield path
            if not kind_of(path):
                yield from _below(path)

    def _address(self, path: Path) -> str:
        return quote(os.fsencode(path.relative_to(self.folder))) + "/"

    def _run(self, run: RunDirectory) -> dict[str, Any]:
        """Return the row of a run: its cells, and its settings to filter by."""
        figures = run_figures(run)
        words = {"SCENARIO": figures["scenario"]}
        words |= {name.upper(): str(value) for name, value in figures["settings"].items()}
        return {
            "name": plain(run.path.name),
            "address": self._address(run.path),
            "ended": _time(run.path / "summary.json"),
            "cells": run_cells(run),
            "words": plain(" ".join(f"{name}={value}" for name, value in words.items())),
            "degraded": figures["degraded"],
        }

    def _compared(self, path: Path, kind: str) -> dict[str, Any]:
        """Return the row of a comparison or sweep."""
        parts, swept = [read_comparison(path)] if kind == "comparison" else [], ""
        if kind == "sweep":
            sweep = read_sweep(path)
            parts, swept = sweep.parts, f"{sweep.setting.upper()}={','.join(sweep.values)}"
        first = parts[0]
        canary, best = _best(first.rows) if kind == "comparison" else (_UNKNOWN, _UNKNOWN)
        return {
            "name": plain(path.name),
            "address": self._address(path),
            "ended": _time(path / "results.parquet" if kind == "comparison" else path),
            "what": plain(f"sweep over {swept}" if swept else "comparison"),
            "setting": plain(title_of(first)),
            "runs": sum(len(good_seeds(part.rows)) for part in parts),
            "canary": canary,
            "best": plain(best),
        }


_UPPER = {"canary": "F1 of canary", "best": "best F1", "broken": "broken links"}


def _best(rows: Mapping[str, Any]) -> tuple[str, str]:
    """Return the mean F1 of ``canary`` and of the best method of a comparison, as text."""
    f1 = {name: mean_of(chosen(rows, name)["f1"]) for name in method_names(rows)}
    known = {name: value for name, value in f1.items() if value == value}
    best = max(known, key=lambda name: known[name], default="")
    canary = f"{known['canary']:.3f}" if "canary" in known else _UNKNOWN
    return canary, f"{known[best]:.3f} {best}" if best else _UNKNOWN


def _time(path: Path) -> str:
    """Return when a file was written, such as ``2026-11-27 21:43`` in UTC."""
    return f"{datetime.fromtimestamp(path.lstat().st_mtime, UTC):%Y-%m-%d %H:%M}"


def _below(folder: Path) -> list[Path]:
    """Return the folders in a folder that are no links and not hidden, in order."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")
    )


def _names(address: str) -> list[str]:
    """Return the names of an address.

    Raises:
        FileNotFoundError: One of them is empty, hidden, or leads elsewhere.
    """
    names = address.split("/")
    if any(not name or name.startswith(".") or "\0" in name for name in names):
        raise FileNotFoundError(address)
    return names


def _open(folder: Path, names: list[str], flags: int) -> int:
    """Return a descriptor of what the names lead to from a folder, without following a link.

    Raises:
        FileNotFoundError: There is no such thing.
    """
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for number, name in enumerate(names):
        own = flags if number == len(names) - 1 else os.O_RDONLY | os.O_DIRECTORY
        before = at
        try:
            at = os.open(name, own | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=before)
        except OSError:
            raise FileNotFoundError("/".join(names)) from None
        finally:
            os.close(before)
    return at
