# SPDX-License-Identifier: Apache-2.0
"""Settings: bounds, defaults by backend, and what the command line takes of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import Scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings, SettingsError, described, make_settings
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.traces.measurement import TRACED
from testbed.measurements.traces.measurement import traces_of_host as allowed_to_host
from testbed.measurements.traces.path_discovery import host_rate_limit
from testbed.network.virtual import LinkModel
from testbed.record.run import RunDirectory
from testbed.traffic.demand import PACKETS_AN_EPOCH
from testbed.traffic.generator import FAST_FLOWS, WIRE_BITS
from tests.conftest import SMALL


@pytest.mark.parametrize("setting", described(), ids=lambda setting: setting.name)
def test_every_setting_says_what_it_is(setting) -> None:
    assert setting.meaning and "\n" not in setting.meaning
    assert (setting.low is None) == (setting.high is None)
    if setting.kind is not str:
        assert setting.low <= setting.default <= setting.high
        for value in (setting.low, setting.high):
            if setting.name != "tcp":
                virtual = ("threads", "skew", "rate", "queue", "delay")
                backend = "virtual" if setting.name in virtual else "flow"
                file = {"topology": "lab.clab.yml"} if setting.name == "hosts" else {}
                made = make_settings({setting.name: value, "backend": backend} | file)
                assert getattr(made, setting.name) == value
        for value in (setting.low - 1, setting.high + 1):
            with pytest.raises(SettingsError, match=f"{setting.name.upper()}={value} is out of"):
                make_settings({setting.name: value})


def test_a_backend_has_defaults_of_its_own() -> None:
    shown = {
        backend: (made.epochs, made.epoch_ms, made.tcp, made.network.line_rate_bps, made.load)
        for backend in ("virtual", "flow", "softswitch", "bmv2")
        for made in [make_settings({"backend": backend})]
    }
    assert shown == {
        "virtual": (5, 2000, 0.0, 1e9, 0.06),
        "flow": (5, 2000, 0.0, 1e9, 0.06),
        "softswitch": (8, 7000, 0.1, 10e6, 0.6),
        "bmv2": (8, 16000, 0.1, 2e6, 0.6),
    }
    assert make_settings({"backend": "bmv2", "epochs": 3}).epochs == 3


def test_links_are_as_the_settings_say_or_else_the_scenario() -> None:
    slow = LinkModel(delay_ns=7_000, rate_bps=10**9, queue_bytes=9_000)
    scenario = Scenario(links=slow)
    assert layout_of(make_settings({}), scenario).links == slow
    given = make_settings({"rate": 60, "queue": 2, "delay": 0.5})
    wanted = LinkModel(delay_ns=500, rate_bps=60_000_000, queue_bytes=3_028)
    assert layout_of(given, scenario).links == wanted
    with pytest.raises(SettingsError, match="RATE=60 needs BACKEND=virtual: leave it out"):
        make_settings({"rate": 60, "backend": "flow"})


def test_what_queues_drop_is_no_fault(tmp_path: Path) -> None:
    settings = replace(SMALL, faults="none", noise="0", rate=300.0, queue=10)
    run_experiment(layout_of(settings), tmp_path / "run", [])
    run = RunDirectory(tmp_path / "run")
    drops = run.table("drops")
    parts = run.network["conservation"]
    assert set(drops["cause"]) == {"queue"} and parts["fault_drops"] == 0
    between_switches = run.table("links")["queue_drops"].sum()
    assert 0 < between_switches < parts["queue_drops"] and len(drops["link"]) > 0


def traces_of_host(settings: Settings) -> float:
    layout = layout_of(settings)
    return allowed_to_host(layout.limits, layout.fabric)


def test_a_method_has_the_same_budget_for_each_packet_on_every_backend() -> None:
    """Probes are of a path and run, ICMP messages and traceroutes of a second."""
    fabric = FatTree(4)
    for backend in ("virtual", "flow", "softswitch", "bmv2"):
        made = make_settings({"backend": backend})
        sent = made.load * made.network.line_rate_bps
        assert made.answers_per_s(fabric) / sent == pytest.approx(100 / 60e6), backend
        assert traces_of_host(made) / sent == pytest.approx(20 / 60e6), backend
        assert made.probes == 100


def test_traceroutes_are_a_share_of_what_007s_theorem_allows_unless_they_are_given() -> None:
    fabric = FatTree(8)
    allowed = TRACED * host_rate_limit(fabric, 200)
    assert traces_of_host(make_settings({"k": 8})) == pytest.approx(allowed)
    assert traces_of_host(make_settings({"k": 8, "icmp_per_s": 50})) == pytest.approx(allowed / 4)
    assert traces_of_host(make_settings({"k": 8, "traces_per_s": 3, "icmp_per_s": 50})) == 3


@pytest.mark.parametrize("k", [4, 8, 16, 48])
def test_hosts_trace_as_many_connections_on_every_fabric(k: int) -> None:
    assert traces_of_host(make_settings({"k": k})) == pytest.approx(20)


@pytest.mark.parametrize("backend", ["virtual", "flow", "softswitch", "bmv2"])
@pytest.mark.parametrize("epoch_ms", [100, 2000, 60_000])
def test_a_flow_sends_as_many_packets_an_epoch_on_every_backend(
    backend: str, epoch_ms: int
) -> None:
    made = make_settings({"backend": backend, "epoch_ms": epoch_ms})
    low, high = made.flow_rates
    assert low == high <= FAST_FLOWS[1]
    packets = low * made.network.line_rate_bps * epoch_ms / 1000 / WIRE_BITS
    assert packets == pytest.approx(PACKETS_AN_EPOCH) or low == FAST_FLOWS[1]


def test_the_rates_of_flows_are_given_as_shares_of_the_line_rate() -> None:
    assert make_settings({"flow_rate": 0.001}).flow_rates == (0.001, 0.001)
    assert make_settings({"flow_rate": "0.001..0.01"}).flow_rates == (0.001, 0.01)
    assert make_settings({"traffic": "flows.csv"}).flow_rates == FAST_FLOWS


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"flow_rate": "fast"}, "FLOW_RATE=fast is not a share of the line rate: use auto"),
        ({"flow_rate": "0.02..0.01"}, "FLOW_RATE=0.02..0.01 is out of range: use 0.0001 to 1"),
        ({"flow_rate": "0"}, "FLOW_RATE=0 is out of range"),
        ({"flow_rate": "nan"}, "FLOW_RATE=nan is out of range"),
        ({"flow_rate": 0.1, "traffic": "a.pcap"}, "FLOW_RATE=0.1 has no effect with a capture"),
        ({"locality": "pod"}, "LOCALITY=pod is unknown: use uniform, or a share from 0 to 1"),
        ({"locality": "nan"}, "LOCALITY=nan is unknown"),
        ({"locality": 0.5, "traffic": "a.csv"}, "LOCALITY=0.5 has no effect with a list of flows"),
        ({"backend": "auto"}, "BACKEND=auto is unknown"),
        ({"injector": "p4", "backend": "flow"}, "INJECTOR=p4 needs packets"),
        ({"tcp": 0.5}, "TCP=0.5 needs real hosts"),
        ({"telemetry": "A1+A1", "backend": "flow"}, r"TELEMETRY=A1\+A1 is unknown"),
        ({"colour": "red"}, "COLOUR is not a setting: choose from K, FAULTS"),
        ({"epochs": 2.5}, "EPOCHS=2.5: .* integer"),
        ({"load": float("nan")}, "LOAD=nan is out of range"),
    ],
)
def test_a_mistake_is_one_line(given: dict, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as error:
        make_settings(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"k": 5}, "K=5 .* even"),
        ({"k": 5, "backend": "flow"}, "K=5 .* even"),
        ({"monitors": "agg"}, r"MONITORS=agg leaves out tor0_0: .* add \+tor"),
        ({"events": "0.5 down tor0_0->agg0_1"}, "EVENTS with down needs real packets"),
        ({"events": "0.5 reboot core9"}, "core9"),
        ({"topology": "ring:4"}, "TOPOLOGY=ring:4"),
    ],
)
def test_what_does_not_fit_the_fabric_is_one_line(given: dict, why: str) -> None:
    settings = make_settings(given)
    with pytest.raises(ValueError, match=why) as error:
        layout_of(settings)
    assert "\n" not in str(error.value)


def test_settings_make_no_fabric_and_their_layout_makes_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    build = FatTree.__init__

    def counted(self: FatTree, k: int) -> None:
        made.append(k)
        build(self, k)

    monkeypatch.setattr(FatTree, "__init__", counted)
    settings = make_settings({"k": 4, "events": "0.5 reboot core0"})
    assert made == []
    layout = layout_of(settings)
    assert layout_of(settings, fabric=layout.fabric).fabric is layout.fabric and made == [4]


def test_settings_are_values() -> None:
    one = Settings(seed=2, noise="1e-5")
    assert replace(one, seed=1) == Settings(noise="1e-5") != one
    assert list(one.as_dict()) == [setting.name for setting in described()]
    with pytest.raises(ValueError, match="epochs"):
        replace(one, epochs=0)


def test_help_imports_no_settings() -> None:
    """Pydantic doubles what `canary --help` takes."""
    watch = (
        "import sys, scenarios.command.cli as c\n"
        "sys.argv[1:] = ['--help']\n"
        "try: c.main()\n"
        "except SystemExit: print('pydantic' in sys.modules, 'numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True)
    assert result.stdout.splitlines()[-1] == "False False", result.stderr
