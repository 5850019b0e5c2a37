# SPDX-License-Identifier: Apache-2.0
"""What goes wrong at the prompt is said there in a line: a switch that died or that another
controller took, a dead path, a signal, nodes that were ended from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed.fabric.fat_tree import FatTree
from testbed.network.requirements import missing
from testbed.network.switches import SOFT_SWITCHES
from tests.patience import PATIENCE_S
from tests.processes import child_of
from tests.testbed.network.mininet.conftest import wait_until
from tests.testbed.network.mininet.terminal import Terminal

pytestmark = [
    pytest.mark.root,
    pytest.mark.nightly,  # each brings a network up
    pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never"),
]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    try:
        assert "agg0_0 to agg3_1" in made.read()
        yield made
    finally:
        made.process.terminate()
        made.process.wait(30)


def shell(switch: str, *options: str) -> subprocess.Popen[str]:
    """p4runtime-sh on a switch of the network that was begun last."""
    return subprocess.Popen(
        [sys.executable, "-m", "scenarios.command.cli", "shell", *options, switch],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_shell_reads_and_takes_a_switch_only_when_forced(terminal: Terminal) -> None:
    readers = [shell("tor0_0"), shell("tor0_0")]
    for reader in readers:
        out, _ = reader.communicate("print(len(p4info.tables))\n", timeout=PATIENCE_S)
        assert "only have read access" in out
        assert f"the network that process {terminal.process.pid} began at" in out
        assert "to read from: FORCE=1 takes it" in out
        assert "CRITICAL" not in out and "Traceback" not in out
    assert terminal.say("fault tor0_0 agg0_0 0.1") == "injected: tor0_0->agg0_0 loses 0.1\n"
    terminal.say("heal")

    taker = shell("tor0_0", "--force")
    assert taker.stdin is not None and taker.stdout is not None
    assert "taken from its controller" in taker.stdout.readline()
    taker.stdin.write(
        'e = table_entry["CanaryIngress.routing.routes"](action="CanaryIngress.routing.local")\n'
        'e.match["dst_ip"] = "10.3.1.3/32"\ne.insert()\nprint("inser" + "ted")\n'
    )
    taker.stdin.flush()
    while "inserted" not in (read := taker.stdout.readline()):
        assert read and "Traceback" not in read, read
    taken = "tor0_0: another controller took over\n"
    answer = terminal.say("fault tor0_0 agg0_0 0.1")
    assert answer.startswith(taken)
    assert "nothing can be injected at tor0_0: another controller took over" in answer
    assert terminal.say("meters").startswith(taken)
    taker.communicate(timeout=PATIENCE_S)
    answer = terminal.say("fault tor0_0 agg0_0 0.1")
    assert re.match(r"tor0_0 is back from another controller: \d+ entries restored\n", answer)
    assert "injected: tor0_0->agg0_0 loses 0.1" in answer
    terminal.say("heal")
    assert "0% packet loss" in terminal.say("h0_0_0 ping -c 2 -i 0.2 h3_1_1")  # its entry is gone


def test_a_switch_that_died_is_named_with_every_command(terminal: Terminal) -> None:
    os.kill(child_of(terminal.process.pid, SOFT_SWITCHES), signal.SIGKILL)
    wait_until(lambda: terminal.say("nodes").startswith("all switches: "))
    died = r"all switches: died at \d\d:\d\d:\d\d \(signal SIGKILL\)\n"
    answer = terminal.say("fault core1 agg0_0 0.1")
    assert re.match(died + "fault: nothing can be injected at core1: died at ", answer), answer
    assert len(answer.splitlines()) == 2
    for command in ("heal", "nodes", "meters", "diagnose canary"):
        assert re.match(died, terminal.say(command)), command


def test_a_dead_path_and_commands_that_are_not_here(terminal: Terminal) -> None:
    for n in (0, 1):
        terminal.say(f"fault tor0_0 agg0_{n} 1")
    answer = terminal.say("iperf h0_0_0 h3_1_1 1")
    assert len(answer.splitlines()) == 1
    assert answer.startswith("iperf: ") and "the path may be dead" in answer and "-J" not in answer
    shown = terminal.say("help").split()
    for command in ("dpctl", "iperfudp", "wait"):
        assert command not in shown
        assert terminal.say(command) == f"{command}: there is no such command: see help\n"
    assert "pingall" in shown and "diagnose" in shown


def test_every_switch_answers_ping_and_an_expired_one_names_its_switch(terminal: Terminal) -> None:
    fabric = FatTree(4)
    addresses = [str(IPv4Address(address)) for address in fabric.switch_ip.tolist()]
    pings = "; do echo $a; ping -c 1 -W 2 $a > /dev/null || echo dead; done"
    answer = terminal.say(f"h0_0_0 for a in {' '.join(fabric.switch_names)} {pings}")
    assert answer.split() == addresses  # the prompt puts addresses in place of names
    answer = terminal.say("h0_0_0 ping -c 1 -t 3 h3_1_1")
    found = re.search(r"From (\S+) icmp_seq=1 Time to live exceeded", answer)
    assert found is not None, answer
    core = fabric.switch_names[addresses.index(found[1])]
    assert core.startswith("core")


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_prompt(terminal: Terminal, kind: signal.Signals) -> None:
    terminal.process.send_signal(kind)
    assert f"canary: ended by {kind.name}: " in terminal.read()
    assert terminal.process.wait(30) == 128 + kind


@pytest.mark.parametrize("busy", [False, True])
def test_nodes_that_are_ended_from_outside_end_the_prompt(terminal: Terminal, busy: bool) -> None:
    pid = int(terminal.say("py h0_0_0.pid"))
    if busy:
        terminal.write("h0_0_0 ping h3_1_1")
    os.kill(pid, signal.SIGKILL)  # as `mn -c` does with all of them
    answer = terminal.read()
    assert f"canary: host h0_0_0 disappeared: its process {pid} was ended" in answer
    assert "Traceback" not in answer
    assert terminal.process.wait(30) == 2
