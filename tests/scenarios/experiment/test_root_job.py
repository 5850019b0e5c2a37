# SPDX-License-Identifier: Apache-2.0
"""What a process of root takes from a user's process: plain data, checked, and nothing else."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

from scenarios.experiment.inputs import demand_of
from scenarios.experiment.root_job import JobError, RootJob, receive_job, send_job
from scenarios.experiment.settings import make_settings
from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import Fault, FaultPlan, FlowMatch, Ternary
from testbed.network.schedules import listed
from testbed.traffic.demand import make_traffic

SETTINGS = make_settings({"backend": "softswitch", "epochs": 2, "epoch_ms": 500, "load": 0.02})
PLAN = FaultPlan(
    (
        Fault(3, 0.25),
        Fault(
            7,
            1.0,
            "blackhole",
            FlowMatch(dst_ip=Ternary(0x0A020000, 0xFFFF0000), protocol=Ternary(6, 0xFF)),
            ((0.1, 0.3), (0.5, 0.6)),
        ),
    ),
    (4,),
)
TRAFFIC, _ = make_traffic(demand_of(SETTINGS), FatTree(4))
JOB = RootJob(SETTINGS, FatTree(4), PLAN, TRAFFIC, watched=True)


def messages(job: RootJob) -> list[bytes]:
    """What goes over the wire."""
    here, there = Pipe()
    sent = []
    with here, there:
        wire: Any = type("Wire", (), {"send_bytes": lambda _, data: sent.append(data)})()
        send_job(wire, job)
    return sent


def received(parts: list[bytes]) -> RootJob:
    wire: Any = type("Wire", (), {})()
    left = iter(parts)

    def recv_bytes(most: int) -> bytes:
        """As `multiprocessing.connection` has it."""
        data = next(left)
        if len(data) > most:
            raise OSError("bad message length")
        return data

    wire.recv_bytes = recv_bytes
    return receive_job(wire)


def test_an_order_arrives_as_it_was_sent() -> None:
    found = received(messages(JOB))
    assert (found.settings, found.plan, found.watched) == (SETTINGS, PLAN, True)
    for name in ("src_host", "dst_host", "src_port", "dst_port", "protocol"):
        assert (getattr(found.traffic, name) == getattr(TRAFFIC, name)).all()
    there, here = listed(found.traffic.packets), listed(TRAFFIC.packets)
    for field in ("time_ns", "flow", "size"):
        assert (getattr(there, field) == getattr(here, field)).all()
    assert len(here) > 100


Change = Callable[[dict[str, Any]], object]
HOSTILE: dict[str, Change] = {
    "a backend without packets": lambda words: words["settings"].update(backend="virtual"),
    "a fabric that is none": lambda words: words["settings"].update(k=5),
    "a setting that does not exist": lambda words: words["settings"].update(scenario="/evil.py"),
    "a link of another fabric": lambda words: words["plan"]["faults"][0].update(link=64),
    "a link below all": lambda words: words["plan"]["faults"][0].update(link=-1),
    "a rate above all": lambda words: words["plan"]["faults"][0].update(rate=1.5),
    "a kind that is none": lambda words: words["plan"]["faults"][0].update(kind="; reboot"),
    "a match that is no number": lambda words: words["plan"]["faults"][0].update(
        match={"src_ip": {"value": "0; reboot", "mask": 1}}
    ),
    "a switch of another fabric": lambda words: words["plan"].update(devices=[20]),
    "fewer flows than none": lambda words: words.update(flows=-1),
    "more packets than memory": lambda words: words.update(packets=2**40),
    "other packets than come": lambda words: words.update(packets=words["packets"] + 1),
    "no plan": lambda words: words.pop("plan"),
    "more than a job has": lambda words: words.update(logs="/etc"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_words_that_make_no_sense_are_refused(what: str) -> None:
    first, *columns = messages(JOB)
    words = json.loads(first)
    HOSTILE[what](words)
    with pytest.raises((ValueError, OSError)):
        received([json.dumps(words).encode(), *columns])


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, 16), (0, -1), (1, 16), (4, 1), (5, 2**63), (5, 0), (6, 2**31), (7, 63), (7, 1515)],
)
def test_traffic_that_makes_no_sense_is_refused(column: int, value: int) -> None:
    kinds = [np.int32, np.int32, np.uint16, np.uint16, np.uint8, np.uint64, np.uint32, np.uint16]
    first, *columns = messages(JOB)
    changed = np.frombuffer(columns[column], kinds[column]).copy()
    changed[-1] = value
    columns[column] = changed.tobytes()
    with pytest.raises(JobError):
        received([first, *columns])


class Evil:
    ran = False

    def __reduce__(self) -> Any:
        return exec, ("from tests.scenarios.experiment.test_root_job import Evil; Evil.ran = True",)


def test_nothing_that_is_sent_is_executed() -> None:
    data = pickle.dumps(Evil())
    pickle.loads(data)
    assert Evil.ran
    Evil.ran = False
    first, *columns = messages(JOB)
    with pytest.raises(JobError):
        received([data, *columns])
    with pytest.raises((ValueError, OSError)):
        received([first, data, *columns[1:]])
    assert not Evil.ran
