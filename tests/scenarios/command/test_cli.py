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

VIRTUAL = ["--backend", "virtual"]
QUICK = ["--epochs", "1", "--load", "0.005", *VIRTUAL]


def canary(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scenarios.command.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("canary: ")
    for word in words:
        assert word in lines[0]


def test_matrices_get_one_thread_unless_the_user_says_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They spin while NumPy and SciPy load, and no product here is large enough for them."""
    scenario = tmp_path / "told.py"
    scenario.write_text(
        "import os\n"
        "print('threads', os.environ['OPENBLAS_NUM_THREADS'])\n"
        "from scenarios.library.healthy import SCENARIO\n"
    )
    arguments = ["run", "--scenario", "told.py", *QUICK, "--methods", "netscope"]
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for given, threads in ({}, 1), ({"OPENBLAS_NUM_THREADS": "2"}, 2):
        result = canary(*arguments, cwd=tmp_path, **given)
        assert f"threads {threads}\n" in result.stdout, result.stderr


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
def test_a_wrong_option_is_one_line(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    refused(canary("run", *QUICK, *arguments, cwd=tmp_path), *words)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_unknown_keys_in_a_fault_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("faults:\n- {link: tor0_0->agg0_0, ratte: 0.1}\n")
    refused(canary("run", *QUICK, "--faults", "f.yaml", cwd=tmp_path), "ratte")


def test_captures_that_are_none_are_refused(tmp_path: Path) -> None:
    packets = [Ether() / IP(src="1.2.3.4", dst="5.6.7.8") / TCP(sport=i) for i in range(50)]
    wrpcap(str(tmp_path / "good.pcap"), packets)
    good = (tmp_path / "good.pcap").read_bytes()
    cases = {
        "empty.pcap": b"",
        "garbage.pcap": b"this is no capture at all" * 10,
        "truncated.pcap": good[:-20],
        "garbage.pcap.gz": b"\x1f\x8bgarbage",
        "cut.pcap.gz": gzip.compress(good)[:-30],
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        refused(canary("run", *VIRTUAL, "--epochs", "1", "--traffic", name, cwd=tmp_path), name)
    wrpcap(str(tmp_path / "arp.pcap"), [Ether() / ARP()] * 5)
    refused(canary("run", *VIRTUAL, "--traffic", "arp.pcap", cwd=tmp_path), "arp.pcap", "IP")
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_capture_is_replayed_kept_or_fitted(tmp_path: Path) -> None:
    packets = []
    for i in range(3000):
        ip = IP(src=f"1.2.{i % 40}.4", dst=f"5.6.{i % 23}.8")
        packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / TCP(sport=i % 9)
        packet.time = 1000 + i * 0.002
        packets.append(packet)
    wrpcap(str(tmp_path / "trace.pcap.gz"), packets, gz=True)
    for traffic, expected in (("trace.pcap.gz", 100), ("trace.pcap.gz:fit", 3000)):
        path = tmp_path / ("run-" + traffic.replace(":", "-"))
        options = [
            *VIRTUAL,
            "--epochs",
            "2",
            "--epoch-ms",
            "100",
            "--traffic",
            traffic,
            "--faults",
            "none",
            "--run",
            str(path),
        ]
        result = canary("run", *options, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        flows = RunDirectory(path).table("flows")
        assert int(flows["sent"].sum()) == expected
        account = RunDirectory(path).summary["capture"]
        assert (account["frames"], account["replayed"]) == (3000, expected)
        assert (
            account["sha256"]
            == hashlib.sha256((tmp_path / "trace.pcap.gz").read_bytes()).hexdigest()
        )
        assert f"3,000 frames read, {expected:,} replayed" in result.stdout
        longer = "trace.pcap.gz is longer than the run of 0.2 s: 100 of 3,000 frames in 6 s"
        assert (longer in result.stderr) == (expected == 100), result.stderr
        assert (flows["src_host"] != flows["dst_host"]).all()
        tuples = zip(*(flows[c].tolist() for c in list(flows)[:5]), strict=True)
        assert len(set(tuples)) == len(flows["sent"])
    assert f"{expected:,} replayed" in canary("analyze", str(path), cwd=tmp_path).stdout


def test_no_compiler_says_what_to_install(tmp_path: Path) -> None:
    result = canary(
        "run", *QUICK, cwd=tmp_path, PATH="/nonexistent", XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    refused(result, "compiler", "gcc")


def test_run_show_and_analyze_print_the_table_plainly_when_piped(tmp_path: Path) -> None:
    first = canary("run", *QUICK, "--run", "here", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "\x1b" not in first.stdout + first.stderr
    for method in ("canary-mle", "netbouncer *", "flock", "007"):
        assert method in first.stdout
    shown = canary("show", "here", cwd=tmp_path)
    assert shown.stdout.strip() in first.stdout
    again = canary("analyze", "here", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    refused(canary("run", *QUICK, "--run", "here", cwd=tmp_path), "here", "exists")
    (tmp_path / "here" / "network.json").unlink()
    for command in ("show", "analyze"):
        refused(canary(command, "here", cwd=tmp_path), "network.json")
    refused(canary("show", "nowhere", cwd=tmp_path), "nowhere")


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
    deadline = time.monotonic() + 60
    while not (tmp_path / "here.partial").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(kind)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    (line,) = [line for line in without_progress(errors) if not line.startswith("about ")]
    assert line.endswith("nothing was kept")
    assert not list(tmp_path.iterdir())


def test_a_scenario_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from scenarios import Scenario\n"
        "SCENARIO = Scenario(defaults={'faults': 'core0->agg0_0:0.3'})\n"
    )
    result = canary("run", *QUICK, "--scenario", "mine.py", "--run", "r", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "mine" in result.stdout
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    refused(canary("run", "--scenario", "broken.py", cwd=tmp_path), "broken.py", "nothing_of_that")
    (tmp_path / "odd.py").write_text(
        "from scenarios import Scenario\nSCENARIO = Scenario(defaults={'fault': '1links'})\n"
    )
    refused(canary("run", *QUICK, "--scenario", "odd.py", cwd=tmp_path), "FAULT is no setting")
    (tmp_path / "empty.py").write_text("")
    refused(canary("run", "--scenario", "empty.py", cwd=tmp_path), "SCENARIO")
