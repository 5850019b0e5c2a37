# SPDX-License-Identifier: Apache-2.0
"""The command line: one line and exit code 2 for every mistake, nothing half-written."""

from __future__ import annotations

import gzip
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import ARP, Ether
from scapy.utils import wrpcap

from testbed.record.run import RunDirectory
from tests.conftest import without_progress
from tests.patience import PATIENCE_S
from tests.present import present
from tests.scenarios.conftest import Canary, Outcome, refused

VIRTUAL = ["--backend", "virtual"]
QUICK = ["--epochs", "1", "--load", "0.005", *VIRTUAL]
ONE = ["--methods", "netbouncer"]


def command(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "scenarios.command.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def outcome_of(done: subprocess.CompletedProcess[str]) -> Outcome:
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_matrices_get_one_thread_unless_the_user_says_more(
    folder: Path, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They spin while NumPy and SciPy load, and no product here is large enough for them."""
    (folder / "told.py").write_text(
        "import os\n"
        "print('threads', os.environ['OPENBLAS_NUM_THREADS'])\n"
        "raise ValueError('that is all')\n"
    )
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    started = command("run", "--scenario", "told.py", *QUICK, cwd=folder)
    assert "threads 1\n" in started.stdout, started.stderr
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    result = canary("run", "--scenario", "told.py", *QUICK)
    assert "threads 2\n" in result.out, result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--k", "5"], ["K=5", "even"]),
        (["--k", "2"], ["K=2"]),
        (["--k", "four"], ["--k", "integer"]),
        (["--faults", "10pxt"], ["10pxt", "10pct"]),
        (["--faults", "tor0_0->agg9_9"], ["agg9_9"]),
        (["--faults", "tor0_0->core0"], ["tor0_0->core0"]),
        (["--faults", "tor0_0->agg0_0:1.5"], ["1.5"]),
        (["--faults", "9999links"], ["9999"]),
        (["--faults", "missing.yaml"], ["missing.yaml"]),
        (["--traffic", "ftp"], ["ftp", "hadoop"]),
        (["--traffic", "missing.pcap"], ["missing.pcap"]),
        (["--load", "3"], ["LOAD=3"]),
        (["--epochs", "0"], ["EPOCHS=0"]),
        (["--monitors", "agg"], ["MONITORS=agg", "tor0_0", "add +tor"]),
        (["--monitors", "tor+spine"], ["MONITORS=tor+spine", "'spine'", "tor, agg, core"]),
        (["--monitors", "tor+200%core"], ["MONITORS=tor+200%core", "out of range"]),
        (["--monitors", "agg", "--backend", "flow"], ["MONITORS=agg", "add +tor"]),
        (["--backend", "bmv9"], ["BACKEND=bmv9", "virtual"]),
        (["--injector", "axe"], ["INJECTOR=axe", "netem"]),
        (["--injector", "nft"], ["INJECTOR=nft", "BACKEND"]),
        (["--scenario", "nope"], ["nope", "faulty_links"]),
        (["--scenario", "nope.py"], ["nope.py"]),
        (["--noise", "2"], ["NOISE=2"]),
        (["--run", "/proc/nowhere/run"], ["/proc/nowhere/run"]),
        (["--bogus"], ["--bogus"]),
        (["--colour", "red"], ["--colour"]),
        (["--epoch-ms", "1.5"], ["--epoch-ms", "integer"]),
        (["--noise", "loud"], ["NOISE=loud", "0..0.0001"]),
        (["--events", "0 drain tor0_0"], ["EVENTS item '0 drain tor0_0'", "tor0_0->agg0_1"]),
        (["--events", "9 drain tor0_0->agg0_0"], ["EVENTS", "the run ends at", "EPOCHS"]),
        (["--events", "0 drain tor0_0->agg0_0", "--backend", "flow"], ["EVENTS", "BACKEND"]),
        (["--telemetry", "INT"], ["TELEMETRY=INT", "BACKEND=flow"]),
    ],
)
def test_a_wrong_option_is_one_line(
    arguments: list[str], words: list[str], folder: Path, canary: Canary
) -> None:
    refused(canary("run", *QUICK, *arguments), *words)
    assert not [p for p in folder.rglob("*") if p.is_file()]


def test_unknown_keys_in_a_fault_file_are_named(folder: Path, canary: Canary) -> None:
    (folder / "f.yaml").write_text("faults:\n- {link: tor0_0->agg0_0, ratte: 0.1}\n")
    refused(canary("run", *QUICK, "--faults", "f.yaml"), "ratte")


def test_captures_that_are_none_are_refused(folder: Path, canary: Canary) -> None:
    packets = [Ether() / IP(src="1.2.3.4", dst="5.6.7.8") / TCP(sport=i) for i in range(50)]
    wrpcap(str(folder / "good.pcap"), packets)
    good = (folder / "good.pcap").read_bytes()
    cases = {
        "empty.pcap": b"",
        "garbage.pcap": b"this is no capture at all" * 10,
        "truncated.pcap": good[:-20],
        "garbage.pcap.gz": b"\x1f\x8bgarbage",
        "cut.pcap.gz": gzip.compress(good)[:-30],
    }
    for name, content in cases.items():
        (folder / name).write_bytes(content)
        refused(canary("run", *VIRTUAL, "--epochs", "1", "--traffic", name), name)
    wrpcap(str(folder / "arp.pcap"), [Ether() / ARP()] * 5)
    refused(canary("run", *VIRTUAL, "--traffic", "arp.pcap"), "arp.pcap", "IP")
    assert not (folder / "runs").exists() or not list((folder / "runs").iterdir())


def test_a_capture_is_replayed_kept_or_fitted(
    folder: Path, canary: Canary, caplog: pytest.LogCaptureFixture
) -> None:
    packets = []
    for i in range(600):
        ip = IP(src=f"1.2.{i % 40}.4", dst=f"5.6.{i % 23}.8")
        packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / TCP(sport=i % 9)
        packet.time = 1000 + i * 0.002
        packets.append(packet)
    wrpcap(str(folder / "trace.pcap.gz"), packets, gz=True)
    for traffic, expected in (("trace.pcap.gz", 100), ("trace.pcap.gz:fit", 600)):
        path = folder / ("run-" + traffic.replace(":", "-"))
        options = ["--epochs", "2", "--epoch-ms", "100", "--traffic", traffic, "--faults", "none"]
        options += [*ONE, "--run", str(path)]
        # What is logged appears on standard error only in a process without pytest.
        new = command("run", *VIRTUAL, *options, cwd=folder) if expected == 100 else None
        result = outcome_of(new) if new else canary("run", *VIRTUAL, *options)
        assert result.code == 0, result.err
        flows = RunDirectory(path).table("flows")
        assert int(flows["sent"].sum()) == expected
        account = present(RunDirectory(path).summary.get("capture"))
        assert (account["frames"], account["replayed"]) == (600, expected)
        assert (
            account["sha256"] == hashlib.sha256((folder / "trace.pcap.gz").read_bytes()).hexdigest()
        )
        assert f"traffic of trace.pcap.gz: {expected} of 600 frames replayed" in result.out
        assert f"600 frames read, {expected} replayed" in canary("show", "-v", str(path)).out
        longer = "trace.pcap.gz is longer than the run of 0.2 s: 100 of 600 frames in 1.2 s"
        assert (longer in result.err + caplog.text) == (expected == 100), result.err
        assert (flows["src_host"] != flows["dst_host"]).all()
        tuples = zip(*(flows[c].tolist() for c in list(flows)[:5]), strict=True)
        assert len(set(tuples)) == len(flows["sent"])
    assert f"{expected} of 600 frames replayed" in canary("analyze", str(path), *ONE).out


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    result = command(
        "run", *QUICK, cwd=tmp_path, CC="/nonexistent/cc", XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    refused(outcome_of(result), "compiler", "gcc")


def test_run_show_and_analyze_print_the_table_plainly_when_piped(
    folder: Path, canary: Canary
) -> None:
    first = command("run", *QUICK, "--run", "here", cwd=folder)
    assert first.returncode == 0, first.stderr
    assert "\x1b" not in first.stdout + first.stderr
    for method in ("canary-mle", "netbouncer *", "flock", "007"):
        assert method in first.stdout
    shown = canary("show", "here")
    assert shown.out.strip() in first.stdout
    again = canary("analyze", "here", *ONE)
    assert again.code == 0, again.err
    refused(canary("run", *QUICK, "--run", "here"), "here", "exists")
    (folder / "here" / "network.json").unlink()
    for name in ("show", "analyze"):
        refused(canary(name, "here"), "network.json")
    refused(canary("show", "nowhere"), "nowhere")


@pytest.mark.usefixtures("hangup_is_heard")
@pytest.mark.parametrize(
    ("kind", "code", "delay"),
    [(signal.SIGINT, 130, 0.0), (signal.SIGTERM, 143, 0.4), (signal.SIGHUP, 129, 0.2)],
)
def test_an_interrupted_run_leaves_nothing_behind(
    tmp_path: Path, kind: signal.Signals, code: int, delay: float
) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "scenarios.command.cli",
            "run",
            *VIRTUAL,
            "--epochs",
            "200",
            "--run",
            "here",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (tmp_path / "here.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(kind)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, errors
    lines = [line for line in without_progress(errors) if not line.startswith("about ")]
    assert len(lines) == 1, errors
    (line,) = lines
    assert line.endswith("nothing was kept")
    assert not list(tmp_path.iterdir())


def test_a_scenario_file_of_ones_own(folder: Path, canary: Canary) -> None:
    (folder / "mine.py").write_text(
        "from canary import Scenario\n"
        "SCENARIO = Scenario(defaults={'faults': 'core0->agg0_0:0.3'})\n"
    )
    result = canary("run", *QUICK, "--scenario", "mine.py", "--run", "r")
    assert result.code == 0, result.err
    assert "mine" in result.out
    (folder / "broken.py").write_text("import nothing_of_that_name\n")
    refused(canary("run", "--scenario", "broken.py"), "broken.py", "nothing_of_that")
    (folder / "odd.py").write_text(
        "from canary import Scenario\nSCENARIO = Scenario(defaults={'fault': '1links'})\n"
    )
    refused(canary("run", *QUICK, "--scenario", "odd.py"), "FAULT is not a setting")
    (folder / "empty.py").write_text("")
    refused(canary("run", "--scenario", "empty.py"), "SCENARIO")


def test_who_reads_only_the_first_line_sees_no_complaint() -> None:
    for words in ("reproduce --json", "explain --json", "reproduce"):
        command = f"set -o pipefail; {sys.executable} -m scenarios.command.cli {words} | head -1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.stdout.count("\n") == 1 and (done.returncode, done.stderr) in ((0, ""), (1, ""))
