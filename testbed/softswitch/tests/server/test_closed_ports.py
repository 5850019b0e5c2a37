# SPDX-License-Identifier: Apache-2.0
"""A thread that is still at work when the ports are closed touches nothing that is gone."""

import threading
from collections.abc import Callable

import pytest

from canary_softswitch.ports.ports import Port, Ports
from canary_softswitch.runtime.instance import SoftSwitchError


def test_who_comes_after_the_end_is_told() -> None:
    ports = Ports([])
    with ports.lock(), ports.lock():
        pass
    ports.close()
    ports.close()
    with pytest.raises(SoftSwitchError, match="the switch has stopped"), ports.lock():
        pass


@pytest.mark.parametrize(
    "late",
    [
        lambda ports: ports.add(Port(1, "lo")),
        lambda ports: ports.remove(1),
        Ports.limit_queues,
        lambda ports: ports.inject(1, bytes(64)),
        Ports.now_us,
        Ports.take,
        Ports.counters,
        Ports.totals,
    ],
)
def test_nothing_reads_memory_that_was_freed(late: Callable[[Ports], object]) -> None:
    ports = Ports([])
    ports.close()
    ports.wake()
    ports.say("info", "nobody hears this")
    with pytest.raises(SoftSwitchError, match="the switch has stopped"):
        late(ports)


def test_the_end_waits_for_who_is_there() -> None:
    ports = Ports([])
    order = []
    there, go_on = threading.Event(), threading.Event()

    def work() -> None:
        with ports.lock():
            there.set()
            go_on.wait(10)
            order.append("worked")

    def end() -> None:
        ports.close()
        order.append("closed")

    threads = [threading.Thread(target=target) for target in (work, end)]
    threads[0].start()
    assert there.wait(10)
    threads[1].start()
    threads[1].join(0.2)
    assert not order
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == ["worked", "closed"]
