# SPDX-License-Identifier: Apache-2.0
"""A thread that is still at work when the ports are closed touches nothing that is gone."""

import threading

import pytest

from testbed.softswitch.runtime.instance import SoftSwitchError
from testbed.softswitch.server.ports import Ports


def test_who_comes_after_the_end_is_told() -> None:
    ports = Ports([])
    with ports.lock(), ports.lock():
        pass
    ports.close()
    ports.close()
    with pytest.raises(SoftSwitchError, match="the switch has stopped"), ports.lock():
        pass


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
