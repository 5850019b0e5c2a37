# SPDX-License-Identifier: Apache-2.0
"""The first screen of runs, made from recorded summaries, held line for line.

``python -m tests.analysis.evaluation.test_screen`` writes the screens anew. The summaries are those
of ``canary run``, without what no screen shows: budgets, parameters, and wrongly blamed links.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.evaluation.screen import (
    FAINTEST,
    Places,
    print_screen,
    screen,
    second_look,
    shown_methods,
)

SCREENS = Path(__file__).parent / "screens"
RECORDED = sorted(path.stem for path in SCREENS.glob("*.json"))
WIDTHS = (60, 80, 120)
PLACES: Places = {
    "page": ("runs/20261127-214343-faulty_links/index.html", ""),
    "more": (
        "canary show -v runs/20261127-214343-faulty_links",
        "3 variants, columns, budgets, blamed links",
    ),
    "again": ("make scenario BACKEND=virtual SEED=1", "   next: SEED=2"),
}
CASES = [(name, width) for name in RECORDED for width in WIDTHS]


def recorded(name: str) -> dict[str, Any]:
    return json.loads((SCREENS / f"{name}.json").read_text())


def printed(summary: dict[str, Any], width: int, *, colour: bool = False) -> str:
    """What a terminal of ``width`` columns shows."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    print_screen(screen(summary, width), PLACES, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def file(name: str, width: int) -> Path:
    return SCREENS / f"{name}_{width}.txt"


@pytest.mark.parametrize(("name", "width"), CASES)
def test_a_screen_is_line_for_line_as_it_was_looked_at(name: str, width: int) -> None:
    assert printed(recorded(name), width) == file(name, width).read_text()


@pytest.mark.parametrize(("name", "width"), CASES)
def test_no_line_is_wider_than_the_terminal_but_those_to_be_copied(name: str, width: int) -> None:
    lines = printed(recorded(name), width).splitlines()
    end = lines.index("", len(lines) - len(PLACES) - 1)
    assert all(len(line) <= width for line in lines[:end])
    assert all(line == line.rstrip() for line in lines)
    assert [line[8:].partition("   ")[0] for line in lines[end + 1 :]] == [
        text for text, _ in PLACES.values()
    ], "whole, so that they can be copied"


@pytest.mark.parametrize("name", RECORDED)
def test_a_pipe_gets_eighty_columns_without_colours(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the width of the terminal that the command runs in."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    console = Console(file=io.StringIO())
    print_screen(screen(recorded(name), 80), PLACES, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == file(name, 80).read_text()


def test_at_the_default_the_faintest_links_and_all_methods_are_in_sight() -> None:
    lines = printed(recorded("k4"), 80).splitlines()
    assert len(lines) <= 26
    in_sight = "\n".join(lines[-23:])  # of 24 rows, the last is the shell's prompt
    summary = recorded("k4")
    assert len(summary["rates"]) > FAINTEST
    faintest = sorted(summary["rates"], key=lambda link: summary["rates"][link])[: FAINTEST - 1]
    assert all(f"\n{link} " in f"\n{in_sight}" for link in faintest)
    assert all(f"\n{name} " in in_sight for name in shown_methods(summary)[0])


@pytest.mark.parametrize("width", [80, 69, 60, 50, 40, 30])
@pytest.mark.parametrize("name", RECORDED)
def test_columns_go_from_the_right_and_never_the_name(name: str, width: int) -> None:
    summary = recorded(name)
    lines = printed(summary, width).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("method  "))
    titles = re.split(r"  +", lines[start])
    every = ["method", "found", "missed", "wrong", "F1", "collected", "probes"]
    assert titles == every[: len(titles)]
    names = [line.split(" ")[0] for line in lines[start + 1 :]]
    assert names[: len(shown_methods(summary)[0])] == shown_methods(summary)[0]


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_printed_of_links_and_methods_is_what_the_summary_has(name: str) -> None:
    """Read back from the screen: who overlooked which link, and what each method found."""
    summary = recorded(name)
    text = printed(summary, 1000)
    for method in shown_methods(summary)[0]:
        entry = summary["methods"][method]
        own = entry[entry["native"]]
        row = re.search(rf"^{re.escape(method)}(?: \*)? +(\d.*)$", text, re.MULTILINE)
        assert row
        found, missed, wrong, f1, *_ = row[1].split()
        assert (int(found), int(missed), int(wrong)) == (
            own["true_positives"],
            own["false_negatives"],
            own["false_positives"],
        )
        assert f1 == f"{own['f1']:.3f}"
    rates = sorted(summary["rates"].values())
    rates = rates if len(rates) <= FAINTEST else rates[: FAINTEST - 1]
    listed = [link for link in summary["faulty_links"] if f"\n{link} " in text]
    assert sorted(summary["rates"][link] for link in listed) == rates, "the faintest"
    for link in listed:
        row = re.search(rf"^{re.escape(link)} +([\d.]+) %(?: of some flows)? +(.*)$", text, re.M)
        assert row
        assert float(row[1]) == pytest.approx(100 * summary["rates"][link], abs=0.051)
        overlooked = {each.partition(" ")[0] for each in row[2].split(", ")} - {"–"}
        for method in shown_methods(summary)[0]:
            own = summary["methods"][method][summary["methods"][method]["native"]]
            ends = set(re.split("->|--", link))
            lacking = [*own["missed"], *own["unobserved"]]
            either = summary["methods"][method]["native"] == "undirected"
            lacks = any(
                set(re.split("->|--", each)) == ends if either else each == link for each in lacking
            )
            assert (method in overlooked) == lacks, (link, method)


def test_a_healthy_run_says_so_and_has_no_table_of_links() -> None:
    text = printed(recorded("healthy"), 80)
    assert text.startswith("no link is broken   K=4 fat-tree") and "overlooked" not in text


def test_who_was_starved_or_badly_cut_is_one_line_that_says_how_to_learn_more() -> None:
    text = printed(recorded("starved"), 80)
    assert "; starved: flock, 007; threshold: 007, netscope\n" in text
    text = printed(recorded("starved"), 120)
    assert "starved: flock, 007; threshold: 007, netscope (canary explain starved)\n" in text


@pytest.mark.parametrize("width", [30, 50, 60, 80, 120])
@pytest.mark.parametrize("mark", ["", "* tells no direction"])
def test_whose_figures_need_a_second_look_is_one_line(mark: str, width: int) -> None:
    words = {
        "starved": ["flock"],
        "threshold": ["netbouncer", "netbouncer-stage", "007", "netscope"],
        "unseen": ["canary", "canary-mle"],
    }
    lines = [str(text) for text in second_look(mark, words, width)]
    assert len(lines) <= 1 + (bool(mark) and width < 62)
    assert all(f"{word}: " in lines[-1] for word in words)
    if width >= 60:
        assert all(len(line) <= width for line in lines)
    if width == 120:
        names = "netbouncer, netbouncer-stage, 007, netscope; unseen: canary, canary-mle"
        assert names in lines[-1]


def test_the_sizes_of_flows_are_said_of_every_traffic() -> None:
    summary = recorded("k4")
    assert printed(summary, 80).splitlines()[2] == summary["flow_sizes"]
    del summary["flow_sizes"]  # the file of the traffic was gone, or an older version wrote it
    assert "flows: mean" not in printed(summary, 80)


def test_a_degraded_run_has_its_reason_and_f1_against_what_was_lost() -> None:
    summary = recorded("real") | {"degraded": ["the controller was late"], "lost_links": []}
    text = printed(summary, 80)
    assert "degraded: the controller was late" in text
    assert re.search(r"^method .* F1  F1 lost  collected", text, re.MULTILINE)


def test_a_summary_of_an_older_version_has_a_screen() -> None:
    summary = recorded("k4")
    for name in ("links", "rates"):
        del summary[name]
    for entry in summary["methods"].values():
        for terms in ("directed", "undirected"):
            for figure in ("best_f1", "class_f1", "classes", "unobserved"):
                del entry[terms][figure]
    text = printed(summary, 80)
    assert text.startswith("6 directed links drop packets") and "threshold" not in text


def test_names_of_a_stranger_are_printed_as_text() -> None:
    summary = recorded("k4")
    summary["faulty_links"] = ["[bold]a->b\x1b[2J"]
    summary["methods"] = {"[red]m\x1b": summary["methods"]["canary"]}
    text = printed(summary, 80)
    assert "\x1b" not in text and "[bold]a->b\\x1b[2J" in text and "[red]m\\x1b" in text


def test_colours_say_nothing_that_the_text_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = printed(recorded("k4"), 80, colour=True)
    assert "\x1b[31m" in coloured, "a miss is red"
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == printed(recorded("k4"), 80)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(recorded("k4"), 80, colour=True)


def main() -> None:
    """Write the screens of the recorded summaries."""
    for name, width in CASES:
        file(name, width).write_text(printed(recorded(name), width))


if __name__ == "__main__":
    main()
