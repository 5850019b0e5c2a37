# SPDX-License-Identifier: Apache-2.0
"""The queue between the switch and a stream's client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from canary_softswitch import limits
from canary_softswitch.device.controllers import Outbox
from canary_softswitch.device.messages import RESOURCE_EXHAUSTED, P4Error, p4runtime_pb2

T = TypeVar("T")


def in_a_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread: a browser's loop may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def packet(n: int, size: int = 1000) -> Any:
    payload = n.to_bytes(4, "big") + bytes(size)
    return p4runtime_pb2.StreamMessageResponse(packet=p4runtime_pb2.PacketIn(payload=payload))


def number(data: bytes) -> int:
    message = p4runtime_pb2.StreamMessageResponse.FromString(data)
    return int.from_bytes(message.packet.payload[:4], "big")


def test_messages_of_threads_come_in_their_order() -> None:
    async def run() -> list[int]:
        out = Outbox(asyncio.get_running_loop(), lambda: None)

        def fill() -> None:
            for i in range(2000):
                assert out.put(packet(i, 10))
            out.end()

        thread = threading.Thread(target=fill)
        thread.start()
        taken = []
        while (data := await out.take()) is not None:
            taken.append(number(data))
        thread.join()
        return taken

    assert in_a_loop(run()) == list(range(2000))


def test_a_slow_client_misses_packets_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTBOX_BYTES", 12_000)

    async def run() -> None:
        out = Outbox(asyncio.get_running_loop(), lambda: None)
        assert [out.put(packet(i), droppable=True) for i in range(30)] == [True] * 10 + [False] * 20
        assert number(await out.take() or b"") == 0
        assert out.put(packet(99), droppable=True)
        assert out.error is None
        left = [number(await out.take() or b"") for _ in range(10)]
        assert left == [*range(1, 10), 99]
        out.end()
        assert await out.take() is None and not out.put(packet(1))

    in_a_loop(run())


@pytest.mark.parametrize("droppable", [True, False])
def test_a_client_that_takes_nothing(droppable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue ends: with the first message that must not be dropped, or after some time."""
    monkeypatch.setattr(limits, "OUTBOX_BYTES", 12_000)

    async def run() -> None:
        ended = asyncio.Event()
        out = Outbox(asyncio.get_running_loop(), ended.set)
        while out.put(packet(0), droppable=True):
            pass
        assert out.error is None
        if droppable:
            monkeypatch.setattr(limits, "OUTBOX_SECONDS", -1.0)
        assert not out.put(packet(0), droppable=droppable)
        await asyncio.wait_for(ended.wait(), 5)
        assert isinstance(out.error, P4Error) and out.error.code == RESOURCE_EXHAUSTED
        assert await out.take() is None  # what was in it is gone

    in_a_loop(run())


def test_one_message_may_be_longer_than_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTBOX_BYTES", 100)

    async def run() -> None:
        out = Outbox(asyncio.get_running_loop(), lambda: None)
        assert out.put(packet(7))
        assert number(await out.take() or b"") == 7

    in_a_loop(run())
