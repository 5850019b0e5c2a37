# SPDX-License-Identifier: Apache-2.0
"""Names are text: what they hold is shown and never done, wherever they come out."""

from __future__ import annotations

import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from analysis.evaluation.comparison_plot import plot
from analysis.evaluation.comparison_table import comparison_table
from analysis.evaluation.ranking import render_ranking
from analysis.evaluation.report import render
from analysis.methods.diagnosis import Diagnosis
from scenarios.command.cli import main
from scenarios.command.doctor import Finding, render_findings
from scenarios.command.options import GivenOptions
from scenarios.experiment.terminal import progress_bar
from testbed.fabric.clos import Fabric
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.names import plain
from testbed.record.fabric_file import NumberedFabric, read_fabric, write_fabric
from testbed.record.files import read_columns, write_columns

HOSTILE = "\x1b[31m[red]\n</td><b>$x^$:smile:\u202e[/]"
SHOWN = "\\x1b[31m[red]\\n</td><b>$x^$:smile:\\u202e[/]"


def terminal() -> Console:
    """Wide, and without colours of its own: an escape in it is a name's."""
    return Console(
        file=io.StringIO(), force_terminal=True, color_system=None, width=400, height=100
    )


def printed(console: Console) -> str:
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text and "\u202e" not in text
    return text


def test_what_cannot_be_seen_is_escaped() -> None:
    assert plain(HOSTILE) == SHOWN
    assert plain("tor0_0->agg0_1 é 漢") == "tor0_0->agg0_1 é 漢"
    assert plain(b"caf\xe9".decode(errors="surrogateescape")) == "caf\\udce9"


@given(st.text(st.characters(), max_size=20))
def test_any_text_becomes_one_line_that_can_be_printed(text: str) -> None:
    shown = plain(text)
    assert shown.isprintable() and plain(shown) == shown
    shown.encode()


def test_names_of_switches_and_methods_in_a_ranking() -> None:
    names = [f"{HOSTILE}{i}" for i in range(3)]
    ends = np.array([0, 1]), np.array([2, 2])
    fabric = Fabric(names, np.array([0, 0, 1]), *ends)
    links = np.arange(fabric.n_links)
    diagnosis = Diagnosis(
        HOSTILE,
        "directed",
        flagged=links[:2].astype(np.int32),
        success=np.full(4, 0.5),
        score=np.ones(4),
        seconds=0.0,
        devices=np.array([2]),
    )
    console = terminal()
    console.print(render_ranking(HOSTILE, diagnosis, NumberedFabric(fabric, links)))
    text = printed(console)
    assert f"{SHOWN} blames" in text and f"{SHOWN}0->{SHOWN}2" in text and f"{SHOWN}2 " in text


def summary() -> dict[str, object]:
    own = {"precision": 1, "recall": 1, "f1": 1, "accuracy": 1}
    own |= {"true_positives": 0, "false_positives": 1, "false_negatives": 1}
    scored = own | {"missed": [HOSTILE], "wrong": [HOSTILE]}
    method = {"native": "directed", "directed": scored, "undirected": scored, "seconds": 0}
    return {
        "scenario": HOSTILE,
        "seed": 1,
        "topology": HOSTILE,
        "backend": "virtual",
        "faulty_links": [HOSTILE],
        "wall_seconds": 0.0,
        "degraded": [HOSTILE],
        "packet_hops": 1,
        "conservation": dict.fromkeys(("sent", "fault_drops", "queue_drops", "ttl_drops"), 0),
        "missing": [HOSTILE],
        "methods": {HOSTILE: method | {"telemetry_bytes": 0, "probe_packets": 0}},
        "capture": {
            "file": HOSTILE,
            "sha256": "0" * 64,
            "frames": 9,
            "replayed": 2,
            "refused": {"ARP": 3, "ICMP": 4},
            "as_ipv4": 1,
            "shortened": 0,
            "share": 0.03,
        },
    }


def test_names_in_the_report_of_a_run() -> None:
    console = terminal()
    render(json.loads(json.dumps(summary())), console)
    text = printed(console)
    assert text.count(SHOWN) == 8
    assert text.count(SHOWN[:10]) == 9  # in the table over several lines
    assert f"capture {SHOWN} sha256 000000000000: 9 frames read (3 % of the file), 2 rep" in text
    assert "2 replayed, 4 ICMP, 3 ARP, 1 IPv6 sent as IPv4" in text


def rows(found: list[list[int]]) -> dict[str, Any]:
    figures = (
        "precision",
        "recall",
        "f1",
        "best_f1",
        "class_f1",
        "undirected_f1",
        "average_precision",
    )
    figures = (*figures, "seconds", "fed", "faulty", "unobserved")
    names = [HOSTILE, "漢字"]
    shared: dict[str, Any] = dict.fromkeys(figures, np.ones(2))
    return shared | {
        "method": names,
        "bench": ["published", "project"],
        "own_name": ["", HOSTILE],
        "unranked": [0, 1],
        "native": ["directed"] * 2,
        "parameters_from": [HOSTILE, "default"],
        "found_at": [np.array(each, np.int32) for each in found],
        "degraded": ["", ""],
    }


def test_names_in_a_comparison_and_its_plot(tmp_path: Path) -> None:
    console = terminal()
    console.print(comparison_table(rows([[1], [1]])))
    assert SHOWN in printed(console)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot(rows([[1], [1]]), HOSTILE, [tmp_path / "a.png"])
        plot(rows([[], []]), "nothing was faulty", [tmp_path / "b.png"])
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_names_in_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    name = "a\x1b[31m[red]\u202e"
    for arguments in (["show", name], ["run", "--scenario", f"{name}.py"], ["run", f"--{name}"]):
        monkeypatch.setattr("sys.argv", ["canary", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("canary: ") and error.isprintable()
        assert "\\x1b[31m[red]\\u202e" in error


@pytest.mark.parametrize("terminal", ["", "dumb", "xterm"])
def test_names_in_progress(
    terminal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scenarios.experiment.terminal.SOON_S", 0.0)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "300")
        monkeypatch.setenv("TERM", terminal)
    with progress_bar() as bar:
        bar(HOSTILE, 0.5)
    message = capsys.readouterr().err
    assert SHOWN in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", message)
    assert "\u202e" not in message and ("\x1b" in message) == (terminal == "xterm")


def test_names_in_what_doctor_finds_and_in_the_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = terminal()
    render_findings(
        [Finding("cache", state, HOSTILE, "run") for state in ("good", "weak")], console
    )
    assert printed(console).count(SHOWN) == 2
    GivenOptions({}, {"--traffic": HOSTILE}).print_environment()
    assert capsys.readouterr().out == f"from the environment: TRAFFIC={SHOWN}\n"


def test_a_colon_in_a_files_name_is_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow took what stands before it for a protocol."""
    monkeypatch.chdir(tmp_path)
    Path("s3:here").mkdir()
    for place in (Path("s3:a.parquet"), Path("s3:here/a.parquet")):
        write_columns(place, {"n": np.arange(3)})
        assert read_columns(place)["n"].tolist() == [0, 1, 2]
    for suffix in ("parquet", "csv"):
        write_fabric(Path(f"s3:here/fabric.{suffix}"), FatTree(4))
        assert read_fabric(Path(f"s3:here/fabric.{suffix}")).fabric.n_links == 64
