# SPDX-License-Identifier: Apache-2.0
"""ROUTING on real packets: how packets are spread, what leaves count, and that none is missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from canary import run
from testbed.control.routings import Routing
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.real_packets import paced

FAULT = "leaf1->spine1:0.2"


@pytest.mark.nightly
@pytest.mark.root
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("backend", "routing"),
    [("softswitch", "spray"), ("softswitch", "flowlet"), ("softswitch", "adaptive")],
)
def test_real_packets_are_spread_and_counted(
    backend: Literal["softswitch"], routing: Routing, tmp_path: Path
) -> None:
    """Some 30 s of processor each."""
    if reason := missing(backend):
        pytest.skip(reason)
    settings: dict[str, Any] = {"topology": "leaf-spine:4:2:1", "tcp": 0, "faults": FAULT}
    settings |= {"methods": "spray-check,any-loss", "backend": backend, "routing": routing}
    settings |= paced(2, 4000, 0.3)
    run(path=tmp_path / "r", seed=3, noise=0, **settings)
    record = RunDirectory(tmp_path / "r")
    assert record.network["conservation"].get("unaccounted") == 0
    assert not record.network["degraded"]
    fabric, flows, counts = record.fabric, record.table("flows"), record.table("spray_counts")
    came = int((flows["sent"] - flows["lost"]).sum())
    assert abs(int(counts["packets"].sum()) - came) < 0.02 * came
    lossy = (counts["src_tor"] == 1) & (counts["spine"] == fabric.switch_names.index("spine1"))
    other = (counts["src_tor"] == 1) & ~lossy
    ratio = counts["packets"][lossy].sum() / counts["packets"][other].sum()
    assert ratio == pytest.approx(0.8, abs=0.03 if routing == "spray" else 0.15)
    lost = int(np.asarray(record.table("links")["fault_drops"])[fabric.link("leaf1->spine1")])
    assert lost > 100
    if routing == "spray":
        methods: Any = record.summary["methods"]
        assert methods["spray-check"]["directed"]["f1"] == 1
