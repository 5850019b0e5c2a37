# SPDX-License-Identifier: Apache-2.0
"""The checks of `canary check-method`: methods of this project pass, and each fault is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.methods.check import CHECKS, check_method
from analysis.methods.diagnosis import UNRANKED, Diagnosis
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.registry import METHODS, ON_REQUEST, make_method
from analysis.telemetry.telemetry import Telemetry
from tests.scenarios.conftest import Canary, canary  # noqa: F401

QUICK = ("canary", "netbouncer", "flock", "007", "detector", "netscope", "canary-mle", "mle")


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.nightly) for name in [*METHODS, *ON_REQUEST]
               if name not in (*QUICK, "per-link-loss", "spray-check"))],  # no world has these
)  # fmt: skip
def test_methods_of_this_project_pass(name: str) -> None:
    """The programs of 007's section 5.3 explain every connection that noise made lossy, too."""
    found = list(check_method(make_method(name)))
    assert [check.name for check in found] == list(CHECKS)
    programs = ("007-binary", "007-integer")
    known = ["keeps its verdict with more packets"] if name in programs else []
    assert [check.name for check in found if check.failed] == known


class Theirs:
    """A stranger's method: NetBouncer's verdict, and something wrong with it."""

    name = "theirs"

    def __init__(self) -> None:
        self.calls = 0

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        self.calls += 1
        return self.change(NetBouncer().localize(telemetry), telemetry)

    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        return found

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        return 0

    def probe_packets(self, telemetry: Telemetry) -> int:
        return 0


def with_links(found: Diagnosis, links: Any) -> Diagnosis:
    return replace(found, flagged=np.unique(np.asarray(links, np.int32)))


class Guesses(Theirs):
    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        return with_links(found, [*found.flagged, self.calls])


class CountsRows(Theirs):
    """Blames the links of the first row that lost a packet."""

    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        probes = telemetry.need("probes", "theirs")
        lossy = np.flatnonzero(probes.lost)[:1]
        return with_links(found, [*found.flagged, *probes.paths.take(lossy).links])


class ReadsNames(Theirs):
    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        named = [i for i, name in enumerate(telemetry.topology.link_names) if "tor0_0" in name]
        return with_links(found, [*found.flagged, *named[: len(found.flagged)]])


class Writes(Theirs):
    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        telemetry.need("probes", "theirs").lost.sort()
        return found


class Blames(Theirs):
    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        return with_links(found, [0, 1])


class HasNoScores(Theirs):
    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        return replace(found, score=np.zeros_like(found.score))


class ScoresNan(Theirs):
    def change(self, found: Diagnosis, telemetry: Telemetry) -> Diagnosis:
        return replace(found, score=found.score * np.nan)


class Divides(Theirs):
    def localize(self, telemetry: Telemetry) -> Diagnosis:
        probes = telemetry.need("probes", "theirs")
        assert 1 // int(probes.sent.min())
        return super().localize(telemetry)


class Ignores(Theirs):
    def localize(self, telemetry: Telemetry) -> Diagnosis:
        if telemetry.probes is None:
            none = np.zeros(telemetry.topology.n_links)
            return Diagnosis("theirs", "directed", np.zeros(0, np.int32), none, none, 0.0)
        return super().localize(telemetry)


@pytest.mark.parametrize(
    ("method", "check", "reason"),
    [
        (Guesses, "gives the same verdict again", "no longer blames"),
        (CountsRows, "does not hang on the order of rows", "it "),
        (ReadsNames, "does not hang on names and numbers", "it "),
        (Writes, "leaves the telemetry as it is", "changes telemetry.probes.lost"),
        (Blames, "blames nothing where nothing is lost", "though no packet was lost"),
        (Blames, "blames a link that loses 5 %", "and not tor1_0->agg1_1"),
        (HasNoScores, "ranks links by their scores", "all links have the same score"),
        (ScoresNan, "returns a valid diagnosis", "not a finite number"),
        (Divides, "bears telemetry without packets", "ZeroDivisionError"),
        (Ignores, "says what it lacks", "use Telemetry.need"),
    ],
)
def test_each_fault_fails_its_check(method: type[Theirs], check: str, reason: str) -> None:
    found = {each.name: each.failed for each in check_method(method())}
    assert reason in found[check], found
    assert len(found[check].splitlines()) == 1


def test_a_sound_method_of_a_stranger_passes() -> None:
    assert not [check for check in check_method(Theirs()) if check.failed]


FILE = """
import numpy as np
from analysis.methods.base import Method

class Worst(Method):
    name = "worst-probes"
    reads = "probes"

    def infer(self, probes, fabric):
        return self.diagnosis(fabric, probes.paths.take(np.flatnonzero(probes.lost > 9)).links)
"""


def test_the_command_names_what_failed(tmp_path: Path, canary: Canary) -> None:  # noqa: F811
    (tmp_path / "mine.py").write_text(FILE)
    found = canary("check-method", str(tmp_path / "mine.py"))
    assert found.code == 1
    assert "mine.py (worst-probes)" in found.out
    assert "failed  ranks links by their scores" in found.out
    assert "passed  returns a valid diagnosis" in found.out
    assert canary("check-method", "canary").code == 0
    assert canary("check-method", str(tmp_path / "no.py")).code == 2


def test_verdicts_on_files_say_what_limits_them(tmp_path: Path, canary: Canary) -> None:  # noqa: F811
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "f.csv").write_text(
        "src,dst,src_tier,dst_tier\na,s,0,1\ns,a,1,0\nb,s,0,1\ns,b,1,0\n"
    )
    (tmp_path / "o.csv").write_text("kind,nodes,sent,lost\nactive,a s,99,50\nactive,b s,99,0\n")
    names = ["--topology", str(tmp_path / "f.csv"), "--telemetry", str(tmp_path / "o.csv")]
    found = canary("localize", *names, "--method", str(tmp_path / "mine.py"))
    assert "mine.py (worst-probes) blames 1 link" in found.out and UNRANKED in found.out
    assert "outside what" not in found.out, "it names no paper"
