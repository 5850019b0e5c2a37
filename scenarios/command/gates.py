# SPDX-License-Identifier: Apache-2.0
"""What a CI run reads of a result: whether methods reach their bars, as an exit code, as JUnit XML
and as Markdown for the summary of a GitHub step."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from testbed.errors import UserError
from testbed.fabric.names import nearest, plain, shortened
from testbed.record.atomic import append, output_file
from testbed.record.outputs import Kind, need_place

_SUITE = "canary"


def _is_report(path: Path) -> bool:
    """Return whether a file is a JUnit report of this program; it is not parsed."""
    with path.open("rb") as file:
        head = file.read(200)
    return f'<testsuites name="{_SUITE}"'.encode() in head


def _is_text(path: Path) -> bool:
    """Return whether a file begins as UTF-8 text, to which Markdown may be added."""
    with path.open("rb") as file:
        head = file.read(4096)
    return b"\0" not in head and "\ufffd" not in head[:4000].decode("utf-8", "replace")[:-1]


JUNIT = Kind("JUnit report of canary", "junit.xml", _is_report)
SUMMARY = Kind("text in UTF-8", "summary.md", _is_text)


@dataclass(frozen=True)
class Score:
    """F1 of a method in a run, or its mean in a comparison.

    Attributes:
        method: Its name.
        f1: From 0 to 1; nan if it is undefined.
        costs: Its figures besides, in words.
        where: The value of the swept setting; "" if none is swept.
        starved: Whether its measurements got too little.
    """

    method: str
    f1: float
    costs: str = ""
    where: str = ""
    starved: bool = False

    @property
    def name(self) -> str:
        """Return the method's name, with the value of the swept setting."""
        return f"{self.method} at {self.where}" if self.where else self.method


@dataclass(frozen=True)
class Gate:
    """The bars that methods have to reach, and the files that tell whether they do.

    Attributes:
        bars: The least F1 by method.
        junit: The file for JUnit XML.
        summary: The file that Markdown is appended to, such as GitHub's ``GITHUB_STEP_SUMMARY``.
    """

    bars: Mapping[str, float] = field(default_factory=dict)
    junit: Path | None = None
    summary: Path | None = None

    @classmethod
    def of(cls, bars: str | None, junit: Path | None, summary: Path | None) -> Gate:
        """Return the gate that the options ask for, after a check of the files.

        Raises:
            UserError: A bar makes no sense (one line).
            testbed.record.outputs.FolderError: A file cannot be written, or holds something else.
        """
        if junit is not None:
            need_place(junit, JUNIT, "--junit ")
        if summary is not None:
            need_place(summary, SUMMARY, "--summary ")
        return cls(parse_bars(bars or ""), junit, summary)

    def need_methods(self, names: Iterable[str]) -> None:
        """Check, before any work, that there will be a score for each bar.

        Raises:
            UserError: A bar is for a method that does not run (one line).
        """
        known = list(names)
        for name in self.bars:
            if name not in known:
                raise UserError(f"--fail-under {name}: no such method runs: {nearest(name, known)}")

    def passes(self, title: str, figures: Mapping[str, Any]) -> bool:
        """Return whether all methods reach their bars; write the files, and print a line on
        standard error for each method that does not.

        Args:
            title: What was run, for the reports.
            figures: The figures that ``canary show --json`` prints.

        Raises:
            UserError: A bar is for a method without a score (one line).
            OSError: A file cannot be written.
        """
        scores = scores_of(figures)
        self.need_methods(dict.fromkeys(score.method for score in scores))
        failed = [score for score in scores if not self._reached(score)]
        if self.junit is not None:
            with output_file(self.junit, JUNIT, "--junit ") as new:
                new.write_bytes(self._xml(title, scores))
        if self.summary is not None:
            need_place(self.summary, SUMMARY, "--summary ")  # again: the run took its time
            append(self.summary, self._markdown(title, figures, scores).encode())
        for score in failed:
            print(f"canary: {plain(self._reason(score))}", file=sys.stderr)
        return not failed

    def _reached(self, score: Score) -> bool:
        bar = self.bars.get(score.method)
        return bar is None or score.f1 >= bar  # nan is not

    def _reason(self, score: Score) -> str:
        f1 = "F1 is undefined" if math.isnan(score.f1) else f"F1 {score.f1:.3f}"
        starved = "; it was starved" if score.starved else ""
        return f"{score.name}: {f1}, less than {self.bars[score.method]:g}{starved}"

    def _xml(self, title: str, scores: Sequence[Score]) -> bytes:
        """Return the report: a test case for each method, which fails if it is under its bar."""
        failed = sum(not self._reached(score) for score in scores)
        counts = {"tests": str(len(scores)), "failures": str(failed), "errors": "0"}
        suites = ElementTree.Element("testsuites", {"name": _SUITE, **counts})
        suite = ElementTree.SubElement(suites, "testsuite", {"name": plain(title), **counts})
        for score in scores:
            names = {"classname": _SUITE, "name": plain(f"F1 of {score.name}")}
            case = ElementTree.SubElement(suite, "testcase", names)
            if not self._reached(score):
                reason = plain(self._reason(score))
                ElementTree.SubElement(case, "failure", {"message": reason})
            out = ElementTree.SubElement(case, "system-out")
            out.text = plain(f"F1 {_number(score.f1)}; {score.costs}")
        ElementTree.indent(suites)
        return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=False) + b"\n"

    def _markdown(self, title: str, figures: Mapping[str, Any], scores: Sequence[Score]) -> str:
        """Return the table of the methods and, of a run, the broken links that were overlooked."""
        lines = [f"### {_cell(title)}", "", "| | method | F1 | at least | costs |"]
        lines.append("| --- | --- | --- | --- | --- |")
        for score in scores:
            bar = self.bars.get(score.method)
            mark = "" if bar is None else "✅" if self._reached(score) else "❌"
            least = "" if bar is None else f"{bar:g}"
            cells = (mark, _cell(score.name), _number(score.f1), least, _cell(score.costs))
            lines.append(f"| {' | '.join(cells)} |")
        if links := figures.get("faulty_links"):
            rates = figures.get("rates", {})
            named = sorted(links, key=lambda link: rates.get(link, 0.0))
            shown = [f"{_cell(link)} {100 * rates.get(link, math.nan):.2g} %" for link in named[:5]]
            more = f" and {len(named) - 5} more" if len(named) > 5 else ""
            lines += [
                "",
                f"{len(links)} broken links, the faintest first: {', '.join(shown)}{more}",
            ]
        return "\n".join([*lines, "", ""])


def parse_bars(text: str) -> dict[str, float]:
    """Return the least F1 by method of a text such as ``canary=0.95,flock:p_bad=0.01=0.9``.

    Raises:
        UserError: The text has another form (one line).
    """
    found: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, bar = item.rpartition("=")
        try:
            value = float(bar)
        except ValueError:
            value = math.nan
        if not name or not 0 <= value <= 1:
            shown = shortened(repr(item))
            raise UserError(f"--fail-under {shown}: say a method and its least F1: canary=0.95")
        found[name] = value
    return found


def scores_of(figures: Mapping[str, Any]) -> list[Score]:
    """Return the scores in the figures of a run, a comparison or a sweep."""
    return list(_scores(figures))


def _scores(figures: Mapping[str, Any]) -> Iterator[Score]:
    from analysis.evaluation.screen import in_units  # it imports NumPy, and canary --help is quick

    if "methods" in figures:
        for name, entry in figures["methods"].items():
            own = entry[entry["native"]]
            costs = (
                f"{own['false_negatives']} missed, {own['false_positives']} wrong, "
                f"{in_units(entry['telemetry_bytes'])} collected, {entry['probe_packets']:,} probes"
            )
            yield Score(name, _f1(own["f1"]), costs, starved=bool(entry.get("starved")))
    elif "means" in figures:
        for name, means in figures["means"].items():
            yield Score(name, _f1(means["F1"]), f"recall {_number(_f1(means['recall']))}")
    else:
        for row in figures["rows"]:
            where = f"{str(figures['setting']).upper()}={row['value']}"
            yield Score(row["method"], _f1(row["f1"]), f"{row['runs']} runs", where)


def _f1(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _cell(text: str) -> str:
    """Return a text as a cell of a table in Markdown, in which nothing is markup."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|#!~" else c for c in plain(text))
