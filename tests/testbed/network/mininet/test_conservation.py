# SPDX-License-Identifier: Apache-2.0
"""The law of conservation, for every injector on every network: each packet that a host sent was
received, or was counted where a fault, a queue, a switch or the emulator itself dropped it; else
the run says how many are missing, and where."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from scenarios.experiment.backends import open_backend
from scenarios.experiment.loop import run as run_epochs
from scenarios.experiment.observer import Observer
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import Emulation, set_up
from testbed.faults.kernel_injectors import NetemInjector, NftInjector, run_in
from testbed.network.mininet import MininetNetwork
from testbed.network.requirements import missing
from testbed.network.speed import slowness
from testbed.record.run import RunDirectory, RunWriter
from tests.conftest import inputs_for
from tests.present import present

Kind = Literal["virtual", "softswitch", "bmv2"]
KERNEL = {"netem": NetemInjector, "nft": NftInjector}
SETTINGS = {"topology": "two-switch", "epochs": 1, "faults": "tor0->tor1:0.5", "noise": "0.01"}
OF_HOSTS = "h0->tor0:0.5, tor0->tor1:0.1, tor1->h1:0.5"
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
@pytest.mark.parametrize("faults", ["tor0->tor1:0.5", OF_HOSTS])
def test_every_packet_is_accounted_for(
    backend: Kind, injector: str, faults: str, tmp_path: Path
) -> None:
    """With 007's traceroutes, of which switches leave most without an answer."""
    if injector in KERNEL and (reason := KERNEL[injector].available()):
        pytest.skip(reason)
    more = {"epoch_ms": 100, "load": 0.05} if backend == "virtual" else REAL
    more |= {"injector": injector, "faults": faults}
    run, injected = measured(backend, tmp_path, Observer(), more)
    network, links = run.network, run.table("links")
    parts: dict[str, int] = dict(network["conservation"])  # type: ignore[arg-type]
    assert parts["unaccounted"] == 0, parts
    assert parts["sent"] == sum(parts.values()) - parts["sent"]
    assert parts["ttl_drops"] >= present(network.get("icmp_messages"))
    # The injector's own counts are those of the links.
    assert int(links["fault_drops"].sum()) == parts["fault_drops"]
    if injector in KERNEL:
        assert np.array_equal(links["fault_drops"], injected[: len(links["fault_drops"])])
    assert links["faulty"].sum() == faults.count("->")
    for link in np.flatnonzero(links["faulty"]).tolist():
        packets, rate = links["packets"][link], links["rate"][link]
        assert packets > 50
        assert links["fault_drops"][link] / packets == pytest.approx(rate, abs=2 / np.sqrt(packets))


PLANTED = 10
RULES = f"""
table netdev planted {{
  chain planted {{
    type filter hook egress device "tor0-eth2" priority 0;
    limit rate 1/day burst {PLANTED} packets fwd to "lo"
  }}
}}
"""


class Planted(Observer):
    """Takes ten packets away between two switches, of which neither hears."""

    def network_up(self, emulation: Emulation) -> None:
        assert isinstance(emulation.network, MininetNetwork)
        pid = emulation.network.host("tor0").pid
        assert not run_in(pid, ["nft", "-f", "-"], RULES)


class Unplugged(Observer):
    """Takes a cable down for a moment."""

    network: MininetNetwork | None = None

    def network_up(self, emulation: Emulation) -> None:
        assert isinstance(emulation.network, MininetNetwork)
        self.network = emulation.network

    def progressed(self, what: str, share: float) -> None:
        if what == "emulation" and share > 0.3 and self.network is not None:
            pid, self.network = self.network.host("tor0").pid, None
            for state in ("down", "up"):
                assert not run_in(pid, ["ip", "link", "set", "tor0-eth2", state])
                time.sleep(0.3)


@pytest.mark.root
def test_packets_that_somebody_took_are_told_with_their_place(tmp_path: Path) -> None:
    if reason := NftInjector.available():
        pytest.skip(reason)
    run, _ = measured("softswitch", tmp_path, Planted(), REAL)
    assert run.network["conservation"].get("unaccounted") == PLANTED
    told = f"{PLANTED} packets were lost, and no counter says why: {PLANTED} at tor0"
    assert told in run.network["degraded"]


@pytest.mark.root
def test_packets_for_a_cable_that_was_down_are_counted_at_its_port(tmp_path: Path) -> None:
    run, _ = measured("softswitch", tmp_path, Unplugged(), REAL)
    parts = run.network["conservation"]
    # Once in 79 runs a packet was counted twice when the cable went down; why is not known.
    assert parts.get("unaccounted") in (-1, 0) and present(parts.get("emulator_drops")) > 0
    drops = run.table("emulator_drops")
    assert {*zip(drops["place"], drops["where"], strict=True)} <= {
        ("tor0->tor1", "port"),
        ("tor1->tor0", "cable"),
    }
    assert any("the emulator lost" in reason for reason in run.network["degraded"])


def measured(
    backend: Kind, path: Path, observer: Observer, more: dict[str, Any]
) -> tuple[RunDirectory, npt.NDArray[np.uint64]]:
    """A run between two switches, and what its injector says to have dropped on each link."""
    if backend != "virtual" and (reason := missing(backend)):
        pytest.skip(reason)
    settings = make_settings(SETTINGS | more | {"backend": backend})
    inputs, writer = inputs_for(settings), RunWriter(path / "run")
    writer.config(run_config(inputs.config))
    with open_backend(inputs, path / "logs") as network:
        emulation = set_up(inputs, network)
        observer.network_up(emulation)
        run_epochs(emulation, writer, observer)
        injected = emulation.injector.dropped()
    return RunDirectory(writer.partial, finished=False), injected
