# SPDX-License-Identifier: Apache-2.0
"""What was measured over links and hosts that were switched off is left out, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.methods.base import diagnose
from analysis.methods.diagnosis import UNSEEN
from analysis.methods.registry import build
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Telemetry
from testbed.fabric.pair_sets import PairSets
from testbed.record.run import RunDirectory


class Changed:
    """A run during which something was switched off."""

    def __init__(self, run: RunDirectory, links: list[int], hosts: list[int]) -> None:
        self._run = run
        self.network = {**run.network, "links_off": links, "hosts_off": hosts}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def read(run: RunDirectory, links: list[int], hosts: list[int]) -> Telemetry:
    return read_telemetry(Changed(run, links, hosts))  # type: ignore[arg-type]


def cable(run: RunDirectory, name: str) -> list[int]:
    link = run.fabric.link(name)
    return [link & ~1, link | 1]


@pytest.mark.parametrize("name", ["tor0_0->agg0_1", "agg1_0->core1"])
def test_no_packet_is_left_that_may_have_crossed_a_link_that_was_off(
    finished_run: RunDirectory, name: str
) -> None:
    links = cable(finished_run, name)
    telemetry, whole = read(finished_run, links, []), read_telemetry(finished_run)
    segments, all_segments = telemetry.segments, whole.segments
    assert segments is not None and all_segments is not None
    crossing = np.array([bool({*path} & {*links}) for path in segments.segments.paths])
    assert crossing.any() and not segments.sent[:, crossing].any()
    assert np.array_equal(segments.sent[:, ~crossing], all_segments.sent[:, ~crossing])
    for part, every in ((telemetry.probes, whole.probes), (telemetry.detector, whole.detector)):
        assert part is not None and every is not None
        crossing = np.array([bool({*path} & {*links}) for path in part.paths])
        assert crossing.any() and not part.sent[crossing].any()
        assert part.sent[~crossing].sum() == every.sent[~crossing].sum() > 0
    flows = telemetry.flows
    assert flows is not None
    assert isinstance(flows.sets, PairSets)
    sets = flows.sets.expanded()
    for number in np.unique(flows.path_set).tolist():
        assert not {*links} & {int(link) for path in sets[number] for link in path}


def test_probes_and_flows_of_a_host_that_was_cut_off_say_nothing(
    finished_run: RunDirectory,
) -> None:
    telemetry, whole = read(finished_run, [], [3]), read_telemetry(finished_run)
    table = finished_run.table("flows")
    own = (table["src_host"] == 3) | (table["dst_host"] == 3)
    assert telemetry.flows is not None and whole.flows is not None
    assert telemetry.flows.sent.sum() == table["sent"][~own].sum() < whole.flows.sent.sum()
    assert telemetry.segments is not None and whole.segments is not None
    assert np.array_equal(telemetry.segments.sent, whole.segments.sent)


@pytest.mark.parametrize("method", ["canary", "canary-mle", "netbouncer", "flock"])
def test_a_link_that_was_off_is_not_observed_and_said_to_be_off(
    finished_run: RunDirectory, method: str
) -> None:
    faulty = int(np.flatnonzero(finished_run.table("links")["faulty"])[0])
    links = [faulty & ~1, faulty | 1]
    found = diagnose(build(method).method, read(finished_run, links, []))
    assert not {*links} & {*found.flagged.tolist()}
    assert [found.state[link] for link in links] == [UNSEEN] * 2
    assert any("not a fault: switched off" in remark for remark in found.remarks)
