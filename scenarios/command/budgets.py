# SPDX-License-Identifier: Apache-2.0
"""Prints the measurement contract that `docs/reference/measurements.md` contains.

Run it as ``python -m scenarios.command.budgets``. The contract is in `testbed.measurements`, a
folder for each measurement. The defaults of limits that a run may change are in
`scenarios.experiment.settings`; the limits of the programs are in `testbed.dataplane`.
"""

from __future__ import annotations

from scenarios.experiment.settings import Setting, described
from testbed.measurements.measurement import Budget
from testbed.measurements.registry import STANDARD

_HEAD = ("it", "what", "for each", "how many", "option", "from", "what gives a starved method more")


def render() -> str:
    """Return the contract as Markdown, with a table for each measurement."""
    settings = {setting.name: setting for setting in described()}
    parts = []
    for one in STANDARD:
        name, what = one.view, one.help
        rows = [_row(each, settings) for each in one.budgets]
        lines = [_HEAD, ("---",) * len(_HEAD), *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("|  |", "| |")
        parts.append(f"### {name}\n\n{what[0].upper()}{what[1:]}.\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _row(each: Budget, settings: dict[str, Setting]) -> tuple[str, ...]:
    """Return the cells of a budget under `_HEAD`."""
    option = f"`{each.option.upper()}=`" if each.option else "fixed"
    many = _default(settings[each.option]) if each.option else each.fixed
    return each.does, each.what, each.per, many, option, each.paper, each.feeds


def _default(setting: Setting) -> str:
    """Return the default of a setting, with those of backends that have their own."""
    if setting.name == "traces_per_s":
        return "what theorem 1 allows for `ICMP_PER_S`"
    own = [f"{backend} {value:g}" for backend, value in setting.on.items()]
    return ", ".join([f"{setting.default:g}", *own])


if __name__ == "__main__":
    print(render(), end="")
