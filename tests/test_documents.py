# SPDX-License-Identifier: Apache-2.0
"""README.md and the first hour show what their commands print, figure by figure.

``python -m tests.documents`` writes their figures anew.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.experiment.estimate import LONG_S
from testbed.fabric.fat_tree import FatTree
from tests import documents
from tests.documents import DOCUMENTS, ROOT, Place, places

PLACES = [place for file in DOCUMENTS for place in places(file)]
FIRST_HOUR = (ROOT / "docs" / "start" / "first_hour.md").read_text()


def named(place: Place) -> object:
    marks = [pytest.mark.nightly] if place.nightly else []
    command = " ".join(place.commands[-1][1:])
    return pytest.param(place, marks=marks, id=f"{Path(place.file).stem}: {command}")


@pytest.mark.parametrize("place", [named(place) for place in PLACES])
def test_what_is_shown_is_what_comes(place: Place) -> None:
    assert place.shown == place.made(), "python -m tests.documents writes it anew"


def rows(place: Place) -> dict[str, list[str]]:
    """What a place shows: cells by the first one of the row."""
    lines = [line.strip("| ") for line in place.shown.splitlines()]
    cells = [
        re.split(r" *\| *" if place.kind == "table" else r"(?: \*)? +", line) for line in lines
    ]
    return {row[0]: row[1:] for row in cells}


def place_after(text: str) -> Place:
    """The first place of the first hour after some text of it."""
    where = FIRST_HOUR.index(text)
    return next(each for each in PLACES if "first_hour" in each.file and each.start > where)


def test_the_text_on_measurement_says_what_its_table_shows() -> None:
    table = rows(place_after("How much measurement does it take?"))
    all_, few, large, one = (
        table[name] for name in ("as it is", "`ALPHA=50 BETA=1`", "`ETA=60`", "`EPOCHS=1`")
    )
    metered = {name: int(row[0].replace(",", "")) for name, row in table.items() if "," in row[0]}
    assert metered["`ALPHA=50 BETA=1`"] < 0.65 * metered["as it is"], "three fifths of the packets"
    assert few[1:3] == all_[1:3], "the same verdict"
    assert float(large[1]) < float(all_[1]) and large[2] == all_[2], "canary misses faults"
    data = [float(row[3].removesuffix("M")) for row in (few, large, all_, one)]
    assert max(data[:3]) < 1.05 * min(data[:3]) and data[3] < 0.25 * data[0], "data hardly follows"
    assert len({row[0] for row in table.values()}) == len(table), "the settings differ"


def test_the_text_on_scale_says_what_its_table_shows() -> None:
    table = rows(place_after("make scenario BACKEND=flow K=16"))
    wrong = {
        name: int(cells[2])
        for name, cells in table.items()
        if len(cells) > 5 and cells[2].isdigit()
    }
    assert wrong["canary-mle"] == 0
    assert all(wrong[name] > 0 for name in ("canary", "netbouncer", "flock+links"))
    assert wrong["flock"] > 5 * wrong["flock+links"], "takes faulty links for failed switches"


def test_what_is_said_of_the_fabric_and_of_long_runs() -> None:
    fabric = FatTree(4)
    message = f"has {fabric.n_links} directed links between its {fabric.n_switches} switches"
    assert message in FIRST_HOUR
    assert LONG_S == 10 and "longer than ten seconds says how long" in FIRST_HOUR
    assert (
        "A run of more than 10 s prints an estimate first"
        in (ROOT / "docs/do/compare.md").read_text()
    )


def test_figures_stand_in_their_places_alone() -> None:
    """Elsewhere a document has no F1, and no seconds or bytes that somebody measured."""
    measured = re.compile(r"F1 (?:is|of|was) [\d.]+|\d[\d.,]* (?:GB|MB|minutes|s of processor)")
    rough = re.compile(r"some \d+ minutes on 2 cores|0\.5 GB")  # the tests; what the set-up takes
    for file in DOCUMENTS:
        text = (ROOT / file).read_text()
        for place in reversed(places(file)):
            text = text[: place.start] + text[place.start + len(place.shown) :]
        text = re.sub(r"```py\n.*?```", "", text, flags=re.DOTALL)
        assert not measured.findall(rough.sub("", text)), file


def test_every_command_can_be_copied() -> None:
    known = ("make", "sudo", "cd", "git", ".venv/bin/canary", ".venv/bin/python", "#")
    for file in DOCUMENTS:
        for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / file).read_text(), re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                assert line.startswith(known), line
                assert "..." not in shlex.join(shlex.split(line, comments=True)), line


def test_the_look_inside_works(tmp_path: Path) -> None:
    [session] = re.findall(r"```python\n(.*?)```", FIRST_HOUR, re.DOTALL)
    [opened] = re.findall(r"-i -c '(.*)'\n", FIRST_HOUR)
    canary = Path(sys.executable).with_name("canary")
    begin = ["run", "BACKEND=virtual", "FAULTS=tor0_0->agg0_1:0.05", "RUN=runs/one"]
    begin += ["EPOCHS=2", "METHODS=canary"]  # the session asks for no more
    subprocess.run([canary, *begin], cwd=tmp_path, check=True, capture_output=True)
    checks = "assert list(top.join(result.addresses(top)).src_host != '') == [True] * 5"
    code = "\n".join([opened, session, checks, "print(verdict.blamed)"])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['tor0_0->agg0_1']\n"


def test_a_wrong_figure_is_found_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    block = "Text.\n\n```sh\nmake scenario K=4\nmake scenario K=8   # larger\n```\n\n"
    marker = "<!-- table: estimate -->\n"
    right = (
        "| | estimate |\n| --- | --- |\n"
        "| `K=4` | about 5 s and 209 MB: 3.74 million packet-hops, 64 links |\n"
        "| `K=8` | about 10 s and 344 MB: 32.1 million packet-hops, 512 links |\n"
    )
    for shown in ("", right, right.replace("209", "357")):
        (tmp_path / "page.md").write_text(f"{block}{marker}{shown}\nMore.\n")
        found = list(documents.differing("page.md", quick=False))
        assert len(found) == (shown != right)
        documents.write("page.md", found)
        assert (tmp_path / "page.md").read_text() == f"{block}{marker}{right}\nMore.\n"
