# SPDX-License-Identifier: Apache-2.0
"""The live network at Mininet's prompt, driven as a user at a terminal would."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.utils import rdpcap

from testbed.network.requirements import missing
from tests.testbed.network.mininet.terminal import Terminal

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never"),
]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    made = Terminal(tmp_path_factory.mktemp("prompt"))
    try:
        yield made
        made.process.wait(30)
    finally:
        made.process.kill()


# Long: a session, in which every line needs the ones before.
@pytest.mark.nightly  # a minute
def test_the_prompt(terminal: Terminal, tmp_path: Path) -> None:
    """One session, from the greeting to the end."""
    greeting = terminal.read()
    for word in ("h0_0_0 to h3_1_1", "agg0_0 to agg3_1", "fault agg0_0 core0 0.05", "diagnose"):
        assert word in greeting

    wrong = {
        "fault agg0_1 core0 0.05": "these are not neighbours",
        "fault agg0_1 core2 7": "rate 7 is outside (0, 1]",
        "fault agg0_1 core2 nan": "rate nan is outside (0, 1]",
        "fault agg0_1 core2 much": "much is not a loss rate",
        "fault agg9_1 core2 0.1": "no switch 'agg9_1'",
        "fault agg0_1": "give a link and a loss rate",
        "heal agg0_1 core2": "agg0_1->core2 is not broken",
        "heal agg0_1": "give a link as two neighbouring switches",
        "meters now": "meters takes no arguments",
        "diagnose canry": "no method 'canry': did you mean canary?",
        "diagnose canary:colour=red": "canary has no parameter colour",
        "iperf h0_0_0": "give two hosts and optionally seconds",
        "iperf h0_0_0 h9_9_9": "h9_9_9 is not a host: hosts are h0_0_0 to h3_1_1",
        "iperf h0_0_0 h0_0_0": "two different hosts",
        "capture": "nothing is captured",
        "capture agg0_1 core2 /nowhere/x.pcap": "cannot write /nowhere/x.pcap",
        "link h0_0_0": "give two neighbours and up or down",
        "link h0_0_0 core0 down": "there is no link between h0_0_0 and core0",
        "h0_0_0 ping -6 -c 1 h0_0_1": "no switch forwards IPv6",
        "switch agg0_1": "give a switch and stop, start or restart",
        "switch h0_0_0 stop": "h0_0_0 is not a switch: switches are",
        "switch agg0_1 start": "agg0_1 is not stopped",
        "py 1/0": "division by zero",
        "frobnicate": "frobnicate: there is no such command",
        "h0_0_0": "Please enter a command",
    }
    for line, message in wrong.items():
        answer = terminal.say(line)
        assert message in answer, (line, answer)
        assert len(answer.splitlines()) <= 1, (line, answer)
        assert "Traceback" not in answer

    dump = tmp_path / "link.pcap"
    assert "injected: agg0_1->core2 loses 0.2" in terminal.say("fault agg0_1 core2 0.2")
    assert f"capturing to {dump}" in terminal.say(f"capture agg0_1->core2 {dump}")
    answer = terminal.say("diagnose")
    verdicts = dict(re.findall(r"^  (\S+)(?: \*)? +(.*)$", answer, re.MULTILINE))
    assert "agg0_1->core2" in verdicts["canary-mle"].split(", "), answer
    assert "agg0_1--core2" in verdicts["netbouncer"].split(", "), answer
    written = re.search(r"([\d,]+) packets in ", terminal.say("capture"))
    assert written is not None
    assert len(rdpcap(str(dump))) == int(written[1].replace(",", "")) > 100

    answer = terminal.say("meters")
    counted = re.search(r"agg0_1 -> core2: ([\d,]+) sent, ([\d,]+) lost", answer)
    assert counted is not None, answer
    sent, lost = (int(number.replace(",", "")) for number in counted.groups())
    assert 0.1 * sent < lost < 0.3 * sent

    answer = terminal.say("diagnose canary-mle")
    assert re.findall(r"^  (\S+) +\S*agg0_1->core2", answer, re.MULTILINE) == ["canary-mle"], answer
    assert terminal.say("heal") == "injected: nothing\n"
    off = "not a fault: switched off: agg0_1--core2 (mend: link agg0_1 core2 up)"
    assert terminal.say("link agg0_1 core2 down") == f"injected: nothing\n{off}\n"
    answer = terminal.say("diagnose canary-mle, netbouncer")
    assert not re.search(r"^  \S+.*agg0_1-", answer, re.MULTILINE), "what is off is not blamed"
    assert "injected: nothing\nnot a fault: switched off: agg0_1--core2 (" in answer
    assert terminal.say("link agg0_1 core2 up") == "injected: nothing\n"
    assert terminal.say("fault") == "injected: nothing\n"
    assert "0% packet loss" in terminal.say("h0_0_0 ping -c 3 -i 0.2 h3_1_1")
    answer = terminal.say("iperf h0_0_0 h3_1_1 1")
    assert re.match(r"h0_0_0 to h3_1_1: \d+\.\d+ Mbit/s, \d+ segments sent again", answer), answer
    assert "let the link from agg0_1 to core2" in terminal.say("help fault")
    terminal.say("exit")
    assert terminal.process.wait(30) == 0
