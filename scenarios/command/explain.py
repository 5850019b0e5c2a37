# SPDX-License-Identifier: Apache-2.0
"""``canary explain``: what a word of the screens, a setting or a method means."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping

from analysis.evaluation.columns import columns
from analysis.evaluation.comparison_table import MEANS
from analysis.methods.base import Method
from analysis.methods.registry import ALIASES, build, method_names
from analysis.methods.variants import split
from scenarios.command.options import table_row
from scenarios.experiment.settings import described
from testbed.errors import UserError
from testbed.fabric.names import nearest
from testbed.measurements.measurement import ENOUGH
from testbed.measurements.registry import BUDGETS, MEASUREMENTS, budget, view_of

_OWN: Mapping[str, str] = {
    "loses": 'the share of its packets that a broken link drops. "of some flows": only the flows '
    "that its fault matches lose packets, as in a black hole.",
    "overlooked": 'the methods that do not blame the broken link. "not observed": no packet that '
    "the method counts crossed the link, so no method could blame it from these measurements.",
    "found": "the faulty links that the method blames. A method with * tells no direction: its "
    "links are the cables, and a cable is faulty if a direction of it is.",
    "missed": "the faulty links that the method does not blame, as far as they were observed.",
    "collected": "the bytes of telemetry that the method's measurements collected in the run.",
    "F1 fabric": "F1 on the links between switches alone. It stands beside F1, which is on the "
    "links of hosts, too, where FAULTS breaks one. A method that does not observe links of hosts "
    "has no verdict on them.",
    "F1 lost": "F1 against the links that really lost packets, whatever the cause. It stands "
    "beside F1 where a run of real packets is degraded.",
    "starved": "the measurements that the method reads got less than "
    f"{ENOUGH:.0%} of what they asked for, so its score shows the budget and not the method. "
    "canary show -v says which budget, and which setting raises it.",
    "threshold": "another threshold would have given the method an F1 of more than 0.1 above its "
    "own: the method ranks the links better than it cuts the ranking. The column best of canary "
    "show -v has that F1.",
    "unranked": "the method gives all links the same score, so that nothing says which of them it "
    "suspects most. Figures of its ranking, as the column best, mean nothing.",
    "unseen": "no packet that the method's measurements count crossed some of the broken links, so "
    "the method could not blame them: they count neither as found nor as missed.",
    "classes": "the measurements do not tell some links apart, and the method blames or misses "
    "them together. The column F1c of canary show -v counts such a class as one.",
    "degraded": "the network or the machine was disturbed, so that the measurements are "
    "incomplete. A comparison leaves such a run out of its means.",
    "domain": "what the method's paper evaluates: how many links are faulty, what healthy links "
    "lose, how large the fabric is. canary show -v has a line for each method that is outside.",
    "behind": "F1 of the best method less that of this one, as the mean of the differences over "
    "the same seeds.",
    "differs": "whether the 95 % interval of the differences does not hold 0. With few seeds even "
    "a large difference may be chance.",
    "95 %": "an interval that holds the true mean in at least 93 of 100 cases.",
    "fed": "the least share that a method's measurements got of what they asked for.",
    "variant": "NAME+CHANGE is the published method NAME with a change of this project.",
    "virtual time": "the switches' program runs on every packet, in one process, on a clock that "
    "waits for it (BACKEND=virtual).",
    "without packets": "the counts are drawn from the distributions of the losses (BACKEND=flow).",
}


def words() -> list[str]:
    """Return all words that can be explained."""
    return [*_explanations()]


def explained(word: str | None) -> str:
    """Return the explanation of a word, or all words if it is None, as text of 80 columns.

    Raises:
        UserError: There is no such word (one line).
    """
    if word is None:
        text = textwrap.fill(", ".join(words()), 78, break_on_hyphens=False)
        return f"canary explain WORD explains one of:\n{text}"
    [(name, text)] = explanations(word).items()
    return "\n".join(textwrap.wrap(f"{name}: {text}", 80, break_on_hyphens=False))


def explanations(word: str | None) -> dict[str, str]:
    """Return the explanation of a word by its name, or those of all words if it is None.

    Raises:
        UserError: There is no such word (one line).
    """
    every = _explanations()
    if word is None:
        return {name: explanation() for name, explanation in every.items()}
    folded = {name.lower(): name for name in every}
    asked = word.strip().lower().removesuffix("*").rstrip(" =:")
    name = word if word in every else folded.get(asked, folded.get(asked.replace("_", " "), ""))
    if not name and (base := split(asked)[0]) in folded:
        name = folded[base]  # a variant that is not in the list
    if not name:
        hint = nearest(word, every)
        raise UserError(f"there is no word {word!r} to explain: {_first_words(hint)}")
    return {name: every[name]()}


def _first_words(hint: str) -> str:
    """Return a hint; where it lists all words, the command that does."""
    return hint if hint.startswith("did") else "canary explain lists them"


def _explanations() -> dict[str, Callable[[], str]]:
    """Return a function for each word that returns its explanation."""
    found: dict[str, Callable[[], str]] = {}
    for column in (*MEANS[1:], *columns({})[1:]):
        found.setdefault(column.title, lambda column=column: column.meaning)
    found |= {name: lambda text=text: text for name, text in _OWN.items()}
    found |= {name: lambda text=text: text for name, text in MEASUREMENTS.items()}
    for each in BUDGETS:
        if each.name not in found and each.name != each.option:
            found[each.name] = lambda each=each: _budget(each.name)
    for name in [*method_names(), *ALIASES]:
        found[name] = lambda name=name: _method(name)
    for setting in described():
        found[setting.name.upper()] = lambda setting=setting: _setting(table_row(setting))
    return found


def _budget(name: str) -> str:
    each = budget(name)
    limit = each.fixed or (f"the setting {each.option.upper()}" if each.option else "no limit")
    return (
        f"a budget of the measurement {view_of(name)}: {each.what} per {each.per}; the limit "
        f"is {limit} ({each.paper})."
    )


def _setting(row: str) -> str:
    _, default, meaning, *_ = (cell.strip() for cell in row.strip("|").split(" | ", 2))
    return f"{meaning.replace('`', '').removesuffix(' |')} [default: {default}]"


def _method(name: str) -> str:
    built = build(ALIASES.get(name, name))
    method = built.method
    text = inspect.cleandoc(type(method).__doc__ or "").partition("\n\n")[0]
    text = " ".join(text.replace("`", "").split())
    kind = {
        "published": "the published algorithm",
        "project": "a method or variant of this project",
        "reference": "the reference that every comparison includes",
    }.get(built.bench, "a method of another package")
    parts = [text.rstrip(".") + f". It is {kind}."]
    domain = getattr(method, "domain", None) if isinstance(method, Method) else None
    if domain is not None and getattr(domain, "paper", ""):
        parts.append(f"Its paper evaluates it in: {domain.paper}.")
    if built.parameters:
        parts.append(f"Parameters: {built.parameters.replace(',', ', ')}.")
    return " ".join(parts)
