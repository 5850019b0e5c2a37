# SPDX-License-Identifier: Apache-2.0
"""The readers of other tools' files: this project's, and those that installed packages register.

A package registers a reader as an entry point of the group ``canary.importers``, whose object is an
`Importer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from analysis.importers import counters, fabrics, flows, pings, traces
from analysis.importers.reader import Importer
from testbed.errors import UserError
from testbed.fabric.names import nearest

GROUP = "canary.importers"

IMPORTERS: Mapping[str, Importer] = {
    each.name: each
    for module in (fabrics, traces, pings, counters, flows)
    for each in vars(module).values()
    if isinstance(each, Importer)
}
"""This project's readers by name, fabrics first."""


def importer_names() -> list[str]:
    """Return the names of all readers: this project's, then the registered ones by name."""
    return [*IMPORTERS, *sorted(point.name for point in entry_points(group=GROUP))]


def find_importer(name: str) -> Importer:
    """Return the reader of a format.

    Raises:
        UserError: There is none, or a registered one cannot be loaded (one line).
    """
    if name in IMPORTERS:
        return IMPORTERS[name]
    for point in entry_points(group=GROUP, name=name):
        package = point.dist.name if point.dist else "a package"
        try:
            found = point.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"format {name!r} of {package} cannot be loaded: {reason}") from None
        if not isinstance(found, Importer):
            raise UserError(f"format {name!r} of {package} is no Importer")
        return found
    known = importer_names()
    guess = nearest(name, known)
    rest = "" if guess.startswith("choose") else f" Known are {', '.join(known)}."
    raise UserError(f"there is no format {name}: {guess}{rest}")


def render() -> str:
    """Return the documentation of all readers of this project in Markdown: a table of the formats,
    and a small file of each."""
    lines = ["| format | files | makes | read by |", "| --- | --- | --- | --- |"]
    for each in IMPORTERS.values():
        read = each.methods or "all methods"
        lines.append(f"| `{each.name}` | {each.what} | {each.makes} | {read} |")
    for each in IMPORTERS.values():
        lines += ["", f"`{each.name}`:", "", "```", *each.example.splitlines(), "```"]
    return "\n".join(lines)
