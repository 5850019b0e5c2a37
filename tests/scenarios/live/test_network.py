# SPDX-License-Identifier: Apache-2.0
"""A network that stays up and measures an epoch when it is asked, here in virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.methods.registry import find_methods
from scenarios.experiment.backends import open_backend
from scenarios.live.network import Live
from testbed.fabric.fat_tree import FatTree
from tests.conftest import SMALL, inputs_for


def test_each_epoch_is_measured_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of both parities, with a fault in the second and the third only."""
    fabric, settings = FatTree(4), replace(SMALL, epochs=1, faults="none")
    link, methods = fabric.link("tor0_0->agg0_1"), find_methods("canary-mle,netbouncer")
    inputs = inputs_for(settings)
    with open_backend(inputs, tmp_path) as backend:
        network = backend.network  # whose virtual time would end with a drain
        soon = lambda: network.run_until(network.now_ns + 50_000_000)  # noqa: E731
        monkeypatch.setattr(network, "drain", soon)
        live = Live(inputs, backend)
        first = live.meters()
        live.fault(link, 0.3)
        broken = [live.diagnose(methods) for _ in range(2)]
        live.heal(link)
        whole, last = live.diagnose(methods), live.meters()
        live.fault(fabric.n_links, 0.3)
        of_host = live.diagnose(methods)
    for measured in (first, last):
        assert measured.sent.sum() > 1000 and not measured.lost.any()
    for found in broken:
        assert list(found) == ["canary-mle", "netbouncer"]
        assert [link in verdict.flagged for verdict in found.values()] == [True, True]
    assert not any(len(verdict.flagged) for verdict in whole.values())
    assert fabric.n_links in of_host["netbouncer"].flagged
    assert not len(of_host["canary-mle"].flagged)  # meters are in switches


def test_after_an_interrupted_epoch_the_next_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = FatTree(4)
    link, methods = fabric.link("tor0_0->agg0_1"), find_methods("canary-mle")
    inputs = inputs_for(replace(SMALL, epochs=1, faults="none"))
    with open_backend(inputs, tmp_path) as backend:
        network, steps, go_on = backend.network, iter(range(20)), backend.network.run_until

        def interrupted(until_ns: int) -> None:
            if next(steps, 0) == 19:
                raise KeyboardInterrupt
            go_on(until_ns)

        monkeypatch.setattr(network, "drain", lambda: go_on(network.now_ns + 50_000_000))
        live = Live(inputs, backend)
        live.fault(link, 0.3)
        monkeypatch.setattr(network, "run_until", interrupted)
        with pytest.raises(KeyboardInterrupt):
            live.diagnose(methods)
        for _ in range(2):
            assert live.diagnose(methods)["canary-mle"].flagged.tolist() == [link]
