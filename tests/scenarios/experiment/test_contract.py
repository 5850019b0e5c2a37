# SPDX-License-Identifier: Apache-2.0
"""The measurement contract: declared once, shown in the documents, and kept in what runs say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from rich.console import Console

from analysis.evaluation.budgets import measured_lines, missed_lines
from analysis.evaluation.report import render
from analysis.methods.base import Method
from analysis.methods.registry import METHODS, find_methods, make_method
from analysis.telemetry.observations import read_telemetry
from canary import load
from scenarios.command.show import make_page
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings, described
from testbed.dataplane import BUCKETS, ROWS, USM
from testbed.measurements.canary import selection
from testbed.measurements.canary.selection import FlowSelector
from testbed.measurements.measurement import ENOUGH
from testbed.measurements.registry import BUDGETS, MEASUREMENTS, budget
from testbed.network.flow import FLOW_RECORDS
from testbed.record import documents
from testbed.record.documents import Measured, Summary
from testbed.record.run import RunDirectory
from tests.conftest import SMALL
from tests.present import present

PASSIVE = "canary,netbouncer,007,detector"
STARVING = replace(SMALL, faults="50pct:0.1", traces_per_s=5.0, icmp_per_s=1000.0)


def use_of(summary: Summary, measurement: str) -> Measured:
    """What a measurement cost in a run."""
    return present(summary.get("measured"))[measurement]


def fed(entry: documents.Method) -> float:
    """The share of its measurements' request that a method got."""
    return present(entry.get("fed"))


def is_starved(entry: documents.Method) -> bool:
    return present(entry.get("starved"))


def run(settings: Settings, path: Path, methods: str = PASSIVE) -> Summary:
    return run_experiment(layout_of(settings), path, find_methods(methods))


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("starved") / "run"
    run(STARVING, path)
    return path


def test_what_is_declared_is_there() -> None:
    options = {setting.name for setting in described()}
    assert {each.option for each in BUDGETS if each.option} <= options
    assert all(bool(each.option) != bool(each.fixed) for each in BUDGETS)
    assert all(each.feeds for each in BUDGETS if each.does in ("sends", "stores"))
    assert budget("meters").fixed == f"{ROWS} rows of {BUCKETS:,}"
    assert budget("rules").fixed == f"{USM.capacity:,}"
    assert budget("flow records").fixed.startswith(f"{FLOW_RECORDS:,}")


def test_every_method_says_which_measurements_it_reads(starved: Path) -> None:
    telemetry = read_telemetry(RunDirectory(starved))
    methods = {name: cast(Method, make_method(name)) for name in METHODS}
    reads = {name: list(method.measurements(telemetry)) for name, method in methods.items()}
    assert reads["canary"] == ["segments"] and reads["007"] == ["connections"]
    assert reads["detector"] == ["detector"] and reads["netbouncer"] == ["probes"]
    assert reads["flock"] == ["probes", "connections", "flows"]
    assert all(set(names) <= set(MEASUREMENTS) for names in reads.values())


def test_who_got_less_than_nine_tenths_is_starved_everywhere(starved: Path) -> None:
    record = RunDirectory(starved)
    methods = record.summary["methods"]
    traces = use_of(record.summary, "connections")["budgets"]["traceroutes"]
    asked, got = traces["asked"], traces["got"]
    flows = record.table("flows")
    assert asked == int(((flows["lost"] > 0) & (flows["protocol"] == 6)).sum())
    assert got == len(record.table("connections")["flow"]) < ENOUGH * asked
    assert fed(methods["007"]) == round(got / asked, 4) and is_starved(methods["007"])
    for name in ("canary", "netbouncer", "detector"):
        assert fed(methods[name]) == 1 and not is_starved(methods[name]), name

    printed = StringIO()
    render(record.summary, Console(file=printed))
    row = next(line for line in printed.getvalue().splitlines() if line.startswith("007 "))
    assert row.endswith(f"{got / asked:.2f}!")
    remarks = present(methods["007"].get("remarks"))
    (remark,) = [each for each in remarks if each.startswith("starved: ")]
    assert "ICMP_PER_S" in remark
    figures = load(starved).figures
    assert figures["starved"].to_dict() == {name: name == "007" for name in PASSIVE.split(",")}
    assert figures["fed"].to_dict()["007"] == fed(methods["007"])
    assert remark in make_page(starved).read_text()


def test_what_feeds_a_starved_method_feeds_it(tmp_path: Path) -> None:
    settings = replace(STARVING, traces_per_s=1000.0, icmp_per_s=10_000.0)
    entry = run(settings, tmp_path / "fed", "007")["methods"]["007"]
    assert fed(entry) > ENOUGH and not is_starved(entry)
    assert not any(remark.startswith("starved") for remark in entry.get("remarks", []))


def test_the_limit_of_icmp_messages_starves_too(tmp_path: Path) -> None:
    settings = replace(STARVING, traces_per_s=1000.0, icmp_per_s=20.0)
    summary = run(settings, tmp_path / "run", "007")
    use = use_of(summary, "connections")["budgets"]
    assert use["traceroutes"]["got"] == use["traceroutes"]["asked"]
    share = use["ICMP messages"]["got"] / use["ICMP messages"]["asked"]
    assert fed(summary["methods"]["007"]) == round(share, 4) < ENOUGH


def test_what_meters_used_is_counted(starved: Path) -> None:
    record = RunDirectory(starved)
    use = use_of(record.summary, "segments")
    installed = present(use.get("installed"))
    selection, table = record.table("selection"), record.table("segments")
    during = selection["installed"].sum()  # some are installed after the last epoch's end
    assert during <= installed < 1.02 * during
    assert present(use.get("digests")) >= installed
    assert use.get("counters_read") == len(record.table("rules")["epoch"])  # of no shared entry
    assert use.get("packets") == table["sent"].sum()
    assert use["budgets"]["alpha"]["got"] == (table["sent"] >= SMALL.alpha).sum()
    assert use["budgets"]["beta"]["got"] == (selection["flows"] >= SMALL.beta).sum()
    later = selection["installed"][selection["epoch"] > 0]
    assert use.get("installed_later") == later.sum() < during
    every = 80 * (SMALL.epochs - 1)
    assert use.get("unchanged") == {"asked": every, "got": every - (later > 0).sum()}
    seen = np.unique(table["segment"][table["sent"] > 0])
    assert use.get("segments_unobserved") == 80 - len(seen)
    lines = "\n".join(measured_lines(record.summary))
    assert all(f"{name}, " in lines for name in MEASUREMENTS)


def test_flows_that_a_full_table_turned_away_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "FlowSelector", partial(FlowSelector, room=(20, 20)))
    summary = run(replace(SMALL, epochs=2), tmp_path / "run", "canary")
    network = RunDirectory(tmp_path / "run").network
    rules = use_of(summary, "segments")["budgets"]["rules"]
    assert rules["asked"] - rules["got"] == network.get("rules_refused", 0) > 0
    canary = summary["methods"]["canary"]
    assert canary.get("starved")
    remarks = present(canary.get("remarks"))
    assert any(each.endswith("it needs a smaller BETA or DELTA") for each in remarks)


def test_targets_are_no_budgets(tmp_path: Path) -> None:
    settings = replace(SMALL, alpha=10**6, beta=0, epochs=2)
    summary = run(settings, tmp_path / "run", "canary")
    (line,) = missed_lines(summary)
    assert line.startswith("segments: targets missed: reached are ALPHA=1000000 in 0% of segments")
    assert line in make_page(tmp_path / "run").read_text()
    reached = run(replace(settings, alpha=1), tmp_path / "reached", "canary")
    assert missed_lines(reached) == []
    assert use_of(summary, "segments")["budgets"]["alpha"]["got"] == 0
    assert fed(summary["methods"]["canary"]) == 1


def test_without_packets_the_same_is_said(tmp_path: Path) -> None:
    settings = replace(STARVING, backend="flow", telemetry="A1+A2+P", traces_per_s=1.0)
    summary = run(settings, tmp_path / "run")
    methods, measured = summary["methods"], present(summary.get("measured"))
    assert set(measured) == set(MEASUREMENTS)
    assert is_starved(methods["007"]) and not is_starved(methods["canary"])
    assert measured["probes"]["budgets"]["probes"] == {"asked": 6400, "got": 6400}
    metered = measured["segments"]
    assert present(metered.get("installed")) > 0 and "beta" in metered["budgets"]
