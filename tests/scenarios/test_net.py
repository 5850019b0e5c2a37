# SPDX-License-Identifier: Apache-2.0
"""`canary.net`: a network of real packets from Python, without root."""

from __future__ import annotations

import os
import random
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import canary
from scenarios.real_net import Net
from testbed.network.network import NetworkError
from testbed.network.requirements import not_installed
from testbed.network.switches import SOFT_SWITCHES
from testbed.rootless import forbidden
from tests.patience import PATIENCE_S
from tests.processes import child_of
from tests.testbed.network.mininet.test_interruption import fabric_links

PROGRAM = Path(__file__).parents[2] / "testbed/softswitch/tests/programs/router.json"
LACKING = forbidden() or not_installed("softswitch")
pytestmark = pytest.mark.skipif(bool(LACKING), reason=LACKING or "never")


def test_a_lab_session_of_thirty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    links = fabric_links()
    file = Path(__file__).with_name("lab_session.py")
    assert len(file.read_text().splitlines()) <= 34
    runpy.run_path(str(file))
    printed = capsys.readouterr().out
    assert printed.startswith("{'agg0_1->core2': 0.2} {'canary-mle': ['agg0_1->core2']}\n")
    assert fabric_links() == links


def test_what_is_wrong_is_one_line_and_the_network_stays() -> None:
    with canary.net(topology="two-switch", backend="softswitch") as net:
        assert (net.hosts, net.switches) == (["h0", "h1"], ["tor0", "tor1"])
        wrong: dict[str, Callable[[], object]] = {
            "there is no node 'h7': choose from h0, h1": lambda: net["h7"],
            "no switch 'tor5'": lambda: net.fault("tor0->tor5", 0.1),
            r"rate 7 is outside \(0, 1\]": lambda: net.fault("tor0->tor1", 7),
            "there is no link between h0 and tor1": lambda: net.configLinkStatus(
                "h0", "tor1", "down"
            ),
            "a link is up or down, not 'off'": lambda: net.configLinkStatus("h0", "tor0", "off"),
            "tor0 is not stopped": lambda: net.start_switch("tor0"),
            "h0 is not stopped": lambda: net.start_host("h0"),
            "no host 'tor0': choose from h0, h1": lambda: net.stop_host("tor0"),
            "there is no method 'canry'": lambda: net.diagnose("canry"),
        }
        for message, call in wrong.items():
            with pytest.raises(ValueError, match=message) as error:
                call()
            assert "\n" not in str(error.value)
        assert net.pingAll() == 0
    with pytest.raises(NetworkError, match="the network is down"):
        net.pingAll()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 3}, "EPOCHS is of runs"),
        ({"backend": "virtual"}, "BACKEND=virtual has no network"),
        ({"faults": "core9->agg0_0"}, "no link .core9->agg0_0."),
        ({"k": 5}, "K=5 is not a fat-tree"),
        ({"bw": 0.01}, "BW=0.01: give a rate of 0.1 to 10000 Mb/s"),
        ({"program": "no.json"}, "PROGRAM=no.json: its P4Info is not beside it, as no.p4info"),
        ({"program": PROGRAM, "faults": "1links"}, "FAULTS needs the Canary program"),
    ],
)
def test_settings_that_make_no_sense_bring_nothing_up(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        canary.net(**settings)  # type: ignore[arg-type]


def test_a_stopped_host_is_no_fault_and_comes_back() -> None:
    with canary.net(topology="two-switch", backend="softswitch") as net:
        net["h0"].cmd("sleep 1000 &")
        assert "sleep" in net["h0"].cmd("jobs")
        net.stop_host("h0")
        with pytest.raises(ValueError, match="h0 is stopped already"):
            net.stop_host("h0")
        assert "100% packet loss" in net["h1"].cmd(f"ping -c 1 -W 1 {net['h0'].IP()}")
        assert not any(net.diagnose("canary,netbouncer").values())
        net.configLinkStatus("h0", "tor0", "up")  # its cable is well, and the host still off
        assert "100% packet loss" in net["h1"].cmd(f"ping -c 1 -W 1 {net['h0'].IP()}")
        net.start_host("h0")
        assert net.pingAll() == 0 and not net.troubles
        net["h0"].cmd("wait")
        assert not net["h0"].cmd("jobs").strip()


def test_dead_switches_are_not_observed_and_nothing_is_blamed_for_them() -> None:
    with canary.net(topology="leaf-spine:2:2", backend="softswitch") as net:
        os.kill(child_of(net._process.pid, SOFT_SWITCHES), signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while not net.troubles and time.monotonic() < deadline:
            time.sleep(0.1)
        assert net.troubles[0].startswith("all switches: died at ")
        assert sorted(net.off) == sorted(net.links)
        assert not any(net.diagnose("canary,canary-mle,mle,flock,netbouncer").values())


CLI = Path(sys.executable).with_name("simple_switch_CLI")


@pytest.mark.skipif(not CLI.exists(), reason="PyPI's simple_switch_CLI writes the entries")
@pytest.mark.parametrize("backend", ["softswitch", "bmv2"])
def test_a_program_of_ones_own_and_slow_links(backend: Literal["softswitch", "bmv2"]) -> None:
    """A router in place of Canary; its entries come by Thrift, as from any client of BMv2."""
    if reason := not_installed(backend):
        pytest.skip(reason)
    with canary.net(program=PROGRAM, bw=4, topology="two-switch", backend=backend) as net:

        def route(switch: str, *hops: tuple[str, int]) -> None:
            for host, port in hops:
                mac = net[host].cmd(f"cat /sys/class/net/{host}-eth0/address").strip()
                entry = f"table_add I.routes I.forward {net[host].ip}/32 => {port} {mac}"
                answer = net[switch].cmd(f"echo '{entry}' | {CLI} --thrift-port 9090")
                assert "Entry has been added" in answer, answer

        assert net.pingAll() == 100
        route("tor0", ("h0", 1), ("h1", 2))
        route("tor1", ("h1", 1), ("h0", 2))
        assert net.pingAll() == 0
        rate, _ = net.iperf(("h0", "h1"), seconds=3)
        assert 0 < rate < 4.2e6
        with pytest.raises(ValueError, match="this needs the Canary program"):
            net.fault("tor0->tor1", 0.5)
        net.stop_switch("tor1")
        net.start_switch("tor1")  # runs the program again, without the entries
        assert net.pingAll() == 100 and not net.troubles
        route("tor1", ("h1", 1), ("h0", 2))
        assert net.pingAll() == 0 and net.faults == {}


@pytest.mark.nightly
def test_a_network_goes_with_the_program_that_made_it() -> None:
    links = fabric_links()
    net = canary.net(topology="two-switch")
    os.kill(net._process.pid, 9)
    with pytest.raises(NetworkError, match="the process of the network has ended"):
        net.pingAll()
    net.stop()
    deadline = time.monotonic() + 30
    while fabric_links() != links and time.monotonic() < deadline:
        time.sleep(0.1)
    assert fabric_links() == links


SEQUENCES = int(os.environ.get("SEQUENCES", "200"))
EVENTS = 20


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["softswitch", "bmv2"])
def test_whatever_was_switched_off_all_is_well_after_the_last_repair(
    backend: Literal["softswitch", "bmv2"],
) -> None:
    """Random sequences of events, each with all that is off switched on again at its end."""
    if reason := not_installed(backend):
        pytest.skip(reason)
    with canary.net(k=4, seed=1, backend=backend) as net:
        for seed in range(SEQUENCES if backend == "softswitch" else max(SEQUENCES // 10, 1)):
            done = disturb(net, random.Random(seed))
            assert not net.off and not net.troubles, (seed, done)
            assert net.pingAll() == 0, (seed, done)
            assert not any(net.diagnose("canary,canary-mle,netbouncer").values()), (seed, done)


def disturb(net: Net, rng: random.Random) -> list[str]:
    """Switch cables, switches and hosts off and on, then all on; return what was done."""
    off: dict[tuple[str, ...], Callable[[], None]] = {}
    done: list[str] = []
    cables = [tuple(link.split("->")) for link in net.links]
    cables += [(host, f"tor{host[1:4]}") for host in net.hosts]
    nodes = [(name,) for name in (*net.switches, *net.hosts)]
    for _ in range(EVENTS):
        what = rng.choice([*cables, *nodes])
        done.append(f"{'on' if what in off else 'off'} {'--'.join(what)}")
        if what in off:
            off.pop(what)()
        elif what[0] in net.hosts and len(what) == 1:
            net.stop_host(*what)
            off[what] = lambda what=what: net.start_host(*what)
        elif len(what) == 1:
            net.stop_switch(*what)
            off[what] = lambda what=what: net.start_switch(*what)
        else:
            net.configLinkStatus(what[0], what[1], "down")
            off[what] = lambda what=what: net.configLinkStatus(what[0], what[1], "up")
    while off:
        off.pop(rng.choice([*off]))()
    return done
