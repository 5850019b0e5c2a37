# SPDX-License-Identifier: Apache-2.0
"""The law of conservation, for every injector on every network: each packet that a host sent was
received, was dropped by a fault, by a queue or as expired, or was lost by the emulator itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import demand_of, inputs_of
from scenarios.experiment.loop import run as run_epochs
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import set_up
from testbed.fabric.packet_fabric import TwoSwitches
from testbed.faults.kernel_injectors import NetemInjector, NftInjector
from testbed.faults.specification import parse_faults
from testbed.network.requirements import missing
from testbed.network.speed import slowness
from testbed.network.virtual import LinkModel
from testbed.record.run import RunDirectory, RunWriter
from testbed.traffic.demand import make_traffic
from tests.present import present

KERNEL = {"netem": NetemInjector, "nft": NftInjector}
SETTINGS = {"topology": "two-switch", "epochs": 1, "faults": "tor0->tor1:0.5", "noise": "0.01"}
SLOW = slowness()  # as in `make test-vm`: the same packets over more time
REAL = {"epoch_ms": round(1200 * SLOW), "tcp": 0, "load": 0.9 / SLOW, "probes": 20}


def on_real_packets(backend: str, injector: str) -> Any:
    return pytest.param(backend, injector, marks=pytest.mark.root)


@pytest.mark.parametrize(
    ("backend", "injector"),
    [
        ("virtual", "p4"),
        *(on_real_packets(b, i) for b in ("softswitch", "bmv2") for i in ("p4", "nft", "netem")),
    ],
)
def test_every_packet_is_accounted_for(
    backend: Literal["virtual", "softswitch", "bmv2"], injector: str, tmp_path: Path
) -> None:
    if backend != "virtual" and (reason := missing(backend)):
        pytest.skip(reason)
    if injector in KERNEL and (reason := KERNEL[injector].available()):
        pytest.skip(reason)
    more = {"epoch_ms": 100, "load": 0.05} if backend == "virtual" else REAL
    settings = make_settings(SETTINGS | more | {"backend": backend, "injector": injector})
    fabric = TwoSwitches()
    plan = parse_faults(settings.faults, fabric, settings.seed)
    traffic, _ = make_traffic(demand_of(settings), fabric)
    inputs = inputs_of(settings, fabric, plan, traffic)
    inputs = replace(inputs, traces_per_s=1e-9)  # no host traces: switches do not count answers
    writer = RunWriter(tmp_path / "run")
    writer.config(run_config("faulty_links", settings))
    with open_backend(inputs, LinkModel(), tmp_path / "logs") as network:
        emulation = set_up(inputs, network)
        run_epochs(emulation, writer, Observer())
        injected = emulation.injector.dropped()
    run = RunDirectory(writer.partial, finished=False)
    parts, links = run.network["conservation"], run.table("links")
    own = int(run.table("emulator_drops")["packets"].sum()) if run.has("emulator_drops") else 0
    ended = ("delivered", "fault_drops", "queue_drops", "ttl_drops")
    other = 0
    if backend == "virtual":
        other = present(run.network.get("other_drops")) + present(run.network.get("in_flight"))
    assert parts["sent"] == sum(parts[name] for name in ended) + own + other
    # The injector's own counts are those of the links.
    assert int(links["fault_drops"].sum()) == parts["fault_drops"]
    if injector in KERNEL:
        assert np.array_equal(links["fault_drops"], injected)
    (link,) = np.flatnonzero(links["faulty"])
    packets = links["packets"][link]
    assert packets > 50
    assert links["fault_drops"][link] / packets == pytest.approx(0.5, abs=2 / np.sqrt(packets))
