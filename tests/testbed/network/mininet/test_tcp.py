# SPDX-License-Identifier: Apache-2.0
"""Real TCP: what iperf3 carries, what the kernels tell of it, and Canary's meters meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from analysis.telemetry.views.segments import read_minus_meters
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import inputs_of, layout_of
from scenarios.experiment.loop import run as run_epochs
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config, run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import set_up
from testbed.faults.injector import FaultInjector
from testbed.faults.plan import Fault, FaultPlan
from testbed.network.mininet import MininetNetwork
from testbed.network.requirements import missing
from testbed.network.schedules import Packets
from testbed.network.switches import Backend
from testbed.record.run import RunDirectory, RunWriter
from testbed.traffic.flows import TCP, Traffic
from testbed.traffic.iperf import BUFFER
from testbed.traffic.retransmissions import (
    PolledRetransmissions,
    TracedRetransmissions,
    TracepointError,
)
from testbed.traffic.sockets import Connection, TcpSockets
from testbed.traffic.transfers import CLIENT_PORTS, SERVER_PORTS
from tests.patience import PATIENCE_S
from tests.present import present
from tests.real_packets import paced
from tests.testbed.network.mininet.conftest import SEGMENTS, TOPOLOGY, wait_until

pytestmark = pytest.mark.root

PAYLOAD = 2000 * 1448
CLIENT, SERVER = "h0_0_0", "h3_1_1"
KEY = (0x0A000002, 0x0A030103, 4444, 5201)  # 10.0.0.2, 10.3.1.3


def losing(net: MininetNetwork, rate: float) -> FaultInjector:
    """Both uplinks of the client's ToR lose packets until ``apply(2.0)``."""
    links = [TOPOLOGY.link(f"tor0_0->agg0_{n}") for n in (0, 1)]
    plan = FaultPlan(tuple(Fault(link, rate, "drop", schedule=((0.0, 1.0),)) for link in links))
    injector = FaultInjector(TOPOLOGY, list(net.controls), plan)
    injector.start()
    return injector


def serve(net: MininetNetwork, sockets: TcpSockets, port: int) -> Any:
    """An iperf3 server that listens."""
    server = net.host(SERVER).popen(
        ["iperf3", "-4", "-s", "-1", "-p", str(port)], stdout=subprocess.DEVNULL
    )
    wait_until(lambda: port in sockets.listening(TOPOLOGY.host_names.index(SERVER)))
    return server


def of_transfer(connections: list[Connection]) -> list[Connection]:
    return [c for c in connections if (c.src_ip, c.dst_ip, c.src_port, c.dst_port) == KEY]


def test_kernels_tell_what_iperf3_tells_and_who_retransmits(net: MininetNetwork) -> None:
    sockets = TcpSockets(net.host_pids())
    polled = PolledRetransmissions(sockets)
    try:
        traced = TracedRetransmissions()
    except TracepointError as reason:
        pytest.skip(f"without the tracepoint: {reason}")
    injector = losing(net, 0.03)
    server = serve(net, sockets, 5201)
    command = ["iperf3", "-4", "-c", "10.3.1.3", "--cport", "4444", "-n", str(PAYLOAD)]
    client = net.host(CLIENT).popen(
        [*command, "-l", "1448", "-b", "6M", "-w", str(BUFFER), "--json"], stdout=subprocess.PIPE
    )
    seen: set[tuple[int, int, int, int]] = set()
    deadline = time.monotonic() + PATIENCE_S
    while client.poll() is None and time.monotonic() < deadline:
        seen |= polled.read()
        time.sleep(0.05)
    told = json.loads(client.communicate(timeout=1)[0])["end"]["streams"][0]["sender"]
    server.wait(timeout=PATIENCE_S)
    injector.apply(2.0)
    found: list[Connection] = []
    wait_until(lambda: bool(found.extend(of_transfer(sockets.ended())) or found))
    (ours,) = found
    assert told["bytes"] == PAYLOAD
    assert told["retransmits"] > 20  # of some 2000
    assert told["retransmits"] <= ours.retransmitted <= told["retransmits"] + 5  # its end, too
    # SYN, ACKs and FIN are more; what was in its buffer when iperf3 called it a day is less
    assert -BUFFER // 1448 <= ours.sent - ours.retransmitted - PAYLOAD // 1448 < 50
    assert KEY in seen
    assert KEY in traced.read()
    assert traced.read() == set()
    traced.close()
    sockets.close()


def test_a_connection_that_cannot_begin_is_known_and_listeners_are(net: MininetNetwork) -> None:
    sockets = TcpSockets(net.host_pids())
    injector = losing(net, 1.0)
    command = ["iperf3", "-4", "-c", "10.3.1.3", "-p", "5202"]
    client = net.host(CLIENT).popen(command, stdout=subprocess.DEVNULL)
    server = serve(net, sockets, 5203)
    time.sleep(1.5)
    for process in (client, server):
        process.kill()
        process.wait()
    injector.apply(2.0)
    tried: list[Connection] = []
    wait_until(
        lambda: bool(tried.extend(c for c in sockets.ended() if c.dst_port == 5202) or tried)
    )
    assert len(tried) == 1
    assert tried[0].sent - 1 == tried[0].retransmitted >= 1  # SYNs
    assert 5203 not in sockets.listening(TOPOLOGY.host_names.index(SERVER))
    sockets.close()


def carried(run: RunDirectory) -> np.ndarray:
    """Which flows of a run iperf3 carried, by the ports they were given."""
    flows = run.table("flows")
    client = np.isin(flows["src_port"], CLIENT_PORTS)
    return client & np.isin(flows["dst_port"], SERVER_PORTS)


# Slow enough that a busy machine's switches drop nothing of their own.
EPOCH_S, EPOCHS = 6, 3
SEGMENTS_EACH = 36  # of a flow: 2 a second, which BMv2 carries with ease


def mesh() -> Traffic:
    """Slow flows between all racks, more of them within a pod.

    Their 5-tuples are always the same, and so are the switches' ECMP choices: with the ACKs, two
    flows or more are on each segment.
    """
    rack = np.arange(TOPOLOGY.n_tors)
    src, dst = (pair.ravel() for pair in np.meshgrid(rack, rack, indexing="ij"))
    copies = np.where(src // 2 == dst // 2, 6, 2) * (src != dst)
    src, dst = np.repeat(src, copies), np.repeat(dst, copies)
    n = len(src)
    begin = np.linspace(0.2, 3.0, n)  # not all of the processes at once
    share = np.linspace(0, 1, SEGMENTS_EACH)
    time_s = begin[:, None] + share * (EPOCHS * EPOCH_S - 0.5 - begin[:, None])
    flow = np.repeat(np.arange(n), SEGMENTS_EACH)
    order = np.argsort(time_s.ravel(), kind="stable")
    host = np.arange(n) % 2  # of the rack's two
    return Traffic(
        src_host=(2 * src + host).astype(np.int32),
        dst_host=(2 * dst + host).astype(np.int32),
        src_port=(40_000 + np.arange(n)).astype(np.uint16),
        dst_port=np.full(n, 80, np.uint16),
        protocol=np.full(n, TCP, np.uint8),
        packets=Packets(
            (time_s.ravel()[order] * 1e9).astype(np.uint64),
            flow[order].astype(np.uint32),
            np.full(len(flow), 1514, np.uint16),
        ),
    )


@pytest.mark.real_time
# On the soft switch alone: on a busy machine BMv2 loses packets of its own.
@pytest.mark.parametrize("backend", ["softswitch"])
def test_tcp_through_a_healthy_network_loses_nothing_on_any_segment(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing(cast(Backend, backend)):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "run"
    settings = make_settings(
        {"backend": backend, "faults": "none", "noise": "0", "tcp": 1.0, "epochs": EPOCHS}
        # few rules on every segment instead of many: the controller has little to do
        | {"epoch_ms": 1000 * EPOCH_S, "eta": 1, "alpha": 10, "beta": 4, "delta": 4}
    )
    writer = RunWriter(path)
    inputs = inputs_of(layout_of(settings), mesh())
    writer.config(run_config(inputs.config))
    with open_backend(inputs, tmp_path / "logs") as up:
        emulation = set_up(inputs, up)
        run_epochs(emulation, writer, Observer())
    run = RunDirectory(writer.partial, finished=False)
    counted = np.zeros(len(SEGMENTS))
    for meter in read_minus_meters(run):
        assert (meter.lost == 0).all()
        assert meter.negative == meter.inconsistent == 0
        counted += np.bincount(meter.segment, meter.sent, minlength=len(SEGMENTS))
    assert (counted > 0).all()  # every segment carried packets that were counted
    tcp = present(run.network.get("tcp"))
    assert tcp["failed"] == tcp["not_begun"] == 0
    assert tcp["transfers"] == mesh().n_flows
    assert int(tcp["finished"]) + int(tcp["ended_with_the_run"]) == tcp["transfers"]
    flows = run.table("flows")
    assert carried(run).all()
    assert (flows["sent"] > 0).all()
    parts = run.network["conservation"]
    assert parts["fault_drops"] == 0
    assert parts["sent"] == parts["delivered"] + parts["ttl_drops"]


@pytest.mark.nightly  # half a minute
@pytest.mark.real_time
def test_a_lossy_link_makes_tcp_resend_and_007_trace_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := missing("softswitch"):
        pytest.skip(reason)
    monkeypatch.chdir(tmp_path)
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "run"
    settings = make_settings(
        paced(3, 2500, 0.3)
        | {"backend": "softswitch", "tcp": 1.0}
        | {"faults": "agg0_0->core0:0.2", "noise": "0"}
    )
    summary = run_experiment(layout_of(settings), path)
    run = RunDirectory(path)
    flows, connections = run.table("flows"), run.table("connections")
    by_iperf = carried(run)
    link = TOPOLOGY.link("agg0_0->core0")
    whole = np.flatnonzero(connections["complete"] & by_iperf[connections["flow"]])
    paths = [connections["path"].take([row]).links for row in whole]
    over = np.array([link in path for path in paths])
    assert over.sum() >= 5
    # what crosses the link resends, and nearly nothing else does
    resent = flows["lost"][connections["flow"][whole]]
    assert resent[over].sum() > 5 * resent[~over].sum()
    assert summary["methods"]["007"]["directed"]["true_positives"] == 1
    assert summary["methods"]["canary-mle"]["directed"]["true_positives"] == 1


def test_without_iperf3_one_line_names_the_package(tmp_path: Path) -> None:
    if reason := missing("softswitch"):
        pytest.skip(reason)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("mnexec", "ip"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        (commands / name).symlink_to(found.stdout.strip())
    python = Path(sys.executable).absolute()
    result = subprocess.run(
        [python, "-m", "scenarios.command.cli", "run", "--backend", "softswitch", "--run", "run"],
        cwd=tmp_path,
        env={"PATH": str(commands), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr == (
        "canary: iperf3 is not on the PATH: apt install iperf3, or use TCP=0\n"
    )
    assert list(tmp_path.iterdir()) == [commands]
