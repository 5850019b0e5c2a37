# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait for what they receive and send lost packets again, in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canary import run
from testbed.errors import UserError
from testbed.network.ranks import Messages
from testbed.record.run import RunDirectory
from testbed.traffic.generator import WIRE_BITS
from testbed.traffic.reacting import TIMEOUT_NS, Kind, messages_of

SMALL: dict[str, Any] = {
    "topology": "leaf-spine:4:2:1",  # 8 hosts, 2 at each leaf
    "load": 0.5,
    "epochs": 2,
    "epoch_ms": 100,
    "noise": 0,
    "methods": "any-loss",
    "faults": "none",
}
FRAME_NS = round(WIRE_BITS)  # at 1 Gb/s
ROUND_TRIP_NS = 8 * 5000
RANKS, FRAMES = 8, 35  # of a chunk of 50 kB
KINDS: tuple[Kind, ...] = ("ring-allreduce", "all-to-all", "tree")


def record(path: Path, traffic: str = "ring-allreduce:mb=0.4:go-back-n", **more: Any) -> Any:
    run(path=path / "r", traffic=traffic, **(SMALL | more))
    return RunDirectory(path / "r")


def lasted(record: Any) -> np.ndarray:
    table = record.table("iterations")
    return np.asarray(table["end_ns"]) - np.asarray(table["begin_ns"])


def data(record: Any) -> np.ndarray:
    """The packets that each connection has sent, without acknowledgements."""
    sent = record.table("flows")["sent"]
    return np.asarray(sent[: len(sent) // 2])


def order(messages: Messages) -> list[int]:
    """All messages in an order in which each follows what it needs."""
    needs = np.bincount(messages.after[:, 1], minlength=len(messages.connection))
    ready, found = np.flatnonzero(needs == 0).tolist(), []
    while ready:
        found.append(one := ready.pop())
        for latter in messages.after[messages.after[:, 0] == one, 1].tolist():
            needs[latter] -= 1
            if not needs[latter]:
                ready.append(latter)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_message_waits_for_what_its_rank_receives(kind: Kind, n: int) -> None:
    messages = messages_of(kind, n)
    assert sorted(order(messages)) == list(range(len(messages.connection)))
    former, latter = (messages.connection[each] for each in messages.after.T)
    assert (messages.receiver[former] == messages.sender[latter]).all()
    ends = [np.bincount(each[messages.connection]) for each in (messages.sender, messages.receiver)]
    if kind != "tree":
        steps = 2 * (n - 1) if kind == "ring-allreduce" else n - 1
        assert [each.tolist() for each in ends] == [[steps] * n] * 2
    else:
        assert len(messages.connection) == 2 * (n - 1) * n


def test_a_ring_without_losses_takes_its_steps(tmp_path: Path) -> None:
    found = record(tmp_path)
    steps = 2 * (RANKS - 1)
    least = steps * (FRAMES - 1) * FRAME_NS
    assert (lasted(found) > least).all()
    assert (lasted(found) < least + steps * (FRAME_NS + ROUND_TRIP_NS)).all()
    begins = np.asarray(found.table("iterations")["begin_ns"])
    assert np.diff(begins) == pytest.approx(2 * steps * FRAMES * FRAME_NS, rel=0.1)  # LOAD=0.5
    assert found.network["conservation"]["unaccounted"] == 0
    sent = data(found) / FRAMES / steps
    assert len(begins) <= sent.min() <= sent.max() <= len(begins) + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recovery", ["go-back-n", "selective-repeat"])
def test_lost_packets_are_sent_again_and_cost_time(
    kind: Kind, recovery: str, tmp_path: Path
) -> None:
    traffic = f"{kind}:mb=0.4:{recovery}"
    healthy, lossy = (
        record(tmp_path / name, traffic, faults=faults, routing="spray")
        for name, faults in (
            ("a", "none"),
            ("b", "leaf0->spine1:0.02, spine0->leaf2:0.02"),  # data and acknowledgements
        )
    )
    lost = int(lossy.table("flows")["lost"].sum())
    assert lost > 20 and len(lasted(lossy)) > 3
    assert lasted(lossy).mean() > 1.01 * lasted(healthy).mean()
    assert np.median(lasted(lossy)) < lasted(healthy).max() + 40 * TIMEOUT_NS
    assert lossy.network["conservation"]["unaccounted"] == 0


def test_go_back_n_sends_more_again_than_selective_repeat(tmp_path: Path) -> None:
    ratio = {}
    for recovery in ("go-back-n", "selective-repeat"):
        traffic = f"ring-allreduce:mb=4:ranks=4:{recovery}"
        found = record(tmp_path / recovery, traffic, faults="leaf0->spine1:0.01", routing="spray")
        lost = np.asarray(found.table("flows")["lost"])
        of_data = int(lost[: len(lost) // 2].sum())
        assert of_data > 10
        ratio[recovery] = found.network["sent_again"] / of_data
    # a round trip is three packets long, which go-back-n discards
    assert 0.8 < ratio["selective-repeat"] < 1.5 < 3 < ratio["go-back-n"] < 8


def test_threads_and_pauses_of_the_controller_change_nothing(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"faults": "leaf0->spine1:0.05", "routing": "spray"}
    one = record(tmp_path / "a", **settings)
    more = record(tmp_path / "b", threads=3, **settings)
    longer = record(tmp_path / "c", epochs=1, epoch_ms=200, **settings)
    for other in (more, longer):
        assert lasted(other).tolist() == lasted(one).tolist()
        assert other.table("flows")["sent"].tolist() == one.table("flows")["sent"].tolist()


def test_a_slow_fabric_slows_the_ranks(tmp_path: Path) -> None:
    found = record(tmp_path, rate=500, epochs=3)
    least = 2 * (RANKS - 1) * (FRAMES - 1) * 2 * FRAME_NS
    assert (lasted(found) > least).all()


def test_real_hosts_do_not_react() -> None:
    with pytest.raises(
        UserError, match="reacts to losses in virtual time alone: leave out go-back"
    ):
        run(backend="softswitch", traffic="tree:go-back-n")
    with pytest.raises(UserError, match="is a collective, and BACKEND=flow sends no packets"):
        run(backend="flow", traffic="tree:go-back-n", methods="flock")
