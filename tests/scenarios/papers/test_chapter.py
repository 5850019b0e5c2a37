# SPDX-License-Identifier: Apache-2.0
"""A chapter: every number in it is in a CSV file, which says where it comes from."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from scenarios.papers.chapter import _paired, write_chapter
from scenarios.papers.experiment import Effort
from scenarios.papers.registry import EXPERIMENTS
from scenarios.papers.reproduce import reproduce
from scenarios.papers.tables import number
from scenarios.papers.tex import REFERENCES, escaped
from testbed.record.files import read_columns
from tests.scenarios.conftest import Canary
from tests.scenarios.papers.test_frame import Here

NAMES = ("canary-table-2", "canary-8")
NUMBER = re.compile(r"(?<![\w.,])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for name in NAMES:
        effort = Effort(draws=3, small=True)
        reproduce(EXPERIMENTS[name], lambda what, share: None, out, effort, workers=Here(1))
    return out


@pytest.fixture(scope="module")
def thesis(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("thesis") / "thesis"
    write_chapter([EXPERIMENTS[name] for name in NAMES], runs, out)
    return out


def content(path: Path) -> list[list[str]]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.reader(lines))


def printed(tex: str) -> Iterator[str]:
    """The text of a chapter, without its commands and the names of files."""
    for line in tex.splitlines()[1:]:
        line = re.sub(r"\\(includegraphics|cite|begin|end|texttt)\{[^}]*\}(\{[^\n]*\})?", " ", line)
        line = re.sub(r"\\multicolumn\{\d+\}\{[^}]*\}+", " ", line)
        yield re.sub(r"\\([%&_#$])", r" \1", line)


def test_every_number_of_the_chapter_is_in_a_csv(thesis: Path) -> None:
    known: set[str] = set()
    for path in (thesis / "data").glob("*.csv"):
        for cell in (cell for row in content(path) for cell in row):
            known |= set(NUMBER.findall(" ".join(printed(f"\n{escaped(cell)}"))))
            with contextlib.suppress(ValueError):
                known.add(number(float(cell)))
    found = [each for line in printed((thesis / "chapter.tex").read_text())
             for each in NUMBER.findall(line)]  # fmt: skip
    assert len(found) > 100
    assert {each for each in found if each not in known} == set()


def test_a_csv_says_where_it_comes_from(thesis: Path, runs: Path) -> None:
    files = sorted((thesis / "data").glob("*.csv"))
    assert len(files) == 4 * len(NAMES)
    for path in files:
        name = next(name for name in NAMES if path.stem.startswith(name))
        head = [line for line in path.read_text().splitlines() if line.startswith("#")]
        facts = dict(line[2:].split(": ", 1) for line in head[1:])
        assert head[0] == "# made by canary chapter"
        results = (runs / name / "results.parquet").read_bytes()
        assert facts["data sha256"] == hashlib.sha256(results).hexdigest()
        assert facts["command"] == f"make reproduce FIG={name} DRAWS=3"
        assert facts["seeds"].startswith("draws 0 to 2") and len(facts["code sha256"]) == 64
        assert "commit" in facts


def test_figures_are_means_of_the_draws_with_paired_differences(thesis: Path, runs: Path) -> None:
    rows = read_columns(runs / "canary-8" / "results.parquet")
    at = list(zip(rows["quantity"], rows["series"], rows["x"], strict=True))
    values = np.asarray(rows["value"])
    for quantity, series, x, draws, mean, *_ in content(thesis / "data" / "canary-8.csv")[1:]:
        own = values[[each == (quantity, series, x) for each in at]]
        assert int(draws) == len(own) and float(mean) == pytest.approx(own.mean())
    own = content(thesis / "data" / "canary-8-paired.csv")[1:]
    assert own
    for quantity, x, one, other, pairs, difference, *_ in own:
        a, b = (
            {rows["draw"][n]: values[n] for n, each in enumerate(at) if each == (quantity, s, x)}
            for s in (one, other)
        )
        apart = [a[draw] - b[draw] for draw in a.keys() & b.keys()]
        assert int(pairs) == len(apart)
        assert float(difference) == pytest.approx(float(np.mean(apart)), abs=1e-12)


def test_a_draw_that_one_series_lacks_is_no_pair() -> None:
    """Precision is undefined in a draw in which nothing is blamed: such a draw has no row."""
    rows = [("precision", "a", "1", draw, value) for draw, value in enumerate((0.5, 0.75, 1.0))]
    rows += [("precision", "b", "1", draw, value) for draw, value in ((2, 0.5), (0, 0.25))]
    columns = zip(*rows, strict=True)
    names = ("quantity", "series", "x", "draw", "value")
    [found] = _paired(dict(zip(names, map(list, columns), strict=True)))
    assert found[:6] == ["precision", "1", "a", "b", 2, 0.375]


def test_figures_are_vectors_as_wide_as_a_column(thesis: Path) -> None:
    figures = sorted((thesis / "figures").iterdir())
    panels = sum(len(EXPERIMENTS[name].panels) for name in NAMES)
    assert len(figures) == panels
    for figure in figures:
        [box] = re.findall(rb"/MediaBox \[ ?0 0 ([\d.]+) [\d.]+ ?\]", figure.read_bytes())
        assert float(box) == pytest.approx(3.33 * 72, abs=1)
    tex = (thesis / "chapter.tex").read_text()
    assert {f"figures/{figure.name}" for figure in figures} == set(
        re.findall(r"includegraphics\{([^}]*)\}", tex)
    )


def test_the_five_papers_are_cited(thesis: Path) -> None:
    keys = set(re.findall(r"^@\w+\{(.*),$", (thesis / "refs.bib").read_text(), re.MULTILINE))
    assert keys == {"canary", "netbouncer", "flock", "007", "detector"}
    assert {name.partition("-")[0] for name in EXPERIMENTS} <= keys
    assert len(re.findall(r"^  title = ", REFERENCES, re.MULTILINE)) == 5


def test_a_chapter_is_made_again_and_nothing_else_is_replaced(
    thesis: Path, runs: Path, canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    thesis = Path(shutil.copytree(thesis, tmp_path / "thesis"))
    words = ("chapter", f"FIG={NAMES[0]}", f"--in={runs}", f"--out={thesis}")
    assert "no PDF: there is neither tectonic nor latexmk" in canary(*words).out
    words = (*words, "--quiet")
    before = (thesis / "data" / "canary-table-2.csv").read_bytes()
    assert canary(*words).out == f"{thesis}\n"
    made = json.loads(canary(*words[:-1], "--json").out)
    assert made["pdf"] is None and "chapter.tex" in made["files"]
    assert (thesis / "data" / "canary-table-2.csv").read_bytes() == before
    (thesis / "refs.bib").write_text("@book{mine}\n")
    result = canary(*words)
    assert result.code == 2 and "refs.bib exists and is no file of a chapter" in result.err
    (thesis / "chapter.tex").write_text("My chapter.\n")
    result = canary(*words)
    assert result.code == 2 and "exists and is no chapter" in result.err
    assert (thesis / "refs.bib").read_text() == "@book{mine}\n"


def test_what_was_not_run_is_one_line(canary: Canary, tmp_path: Path) -> None:
    result = canary("chapter", "--fig=canary-8", f"--in={tmp_path}", f"--out={tmp_path / 'thesis'}")
    assert result.code == 2 and "run make reproduce FIG=canary-8 first" in result.err
    assert not (tmp_path / "thesis").exists()
    result = canary("chapter", "--fig=canary-88", f"--out={tmp_path / 'thesis'}")
    assert result.code == 2 and "there is no figure canary-88" in result.err


def test_text_is_printed_and_never_run() -> None:
    assert escaped(r"\input{/etc/passwd} 5 % a_b #1 $x$ ~^") == (
        r"\textbackslash{}input\{/etc/passwd\} 5 \% a\_b \#1 \$x\$ "
        r"\textasciitilde{}\textasciicircum{}"
    )
    assert escaped("α=10⁻⁵ × λ") == r"$\alpha$=10$^{-}$$^{5}$ $\times$ $\lambda$"
    assert escaped("字") == "[U+5B57]"


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("latexmk") is None, reason="there is no latexmk")
def test_the_pdf_is_made(runs: Path, tmp_path: Path, canary: Canary) -> None:
    out = tmp_path / "thesis"
    result = canary("chapter", f"--fig={','.join(NAMES)}", f"--in={runs}", f"--out={out}")
    assert result.code == 0 and f"pdf      {out / 'main.pdf'}" in result.out
    assert (out / "main.pdf").read_bytes().startswith(b"%PDF")
    log = (out / "main.log").read_text(errors="replace")
    assert "undefined" not in log.lower() and "Missing character" not in log
