# SPDX-License-Identifier: Apache-2.0
"""Who may see what is watched, what they get, and that nothing is left of the server."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from scenarios.live.publisher import Publisher
from scenarios.live.server import LiveEvents, app_of
from tests.patience import PATIENCE_S

"""The server is nicer than the tests: beside three on one processor it has a thirtieth of it."""


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    made = Publisher()
    made.publish("page", "<p>the page</p>")
    yield made
    made.close()


def ask(address: str, path: str = "/", host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE_S)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read(1000)
    connection.close()
    return found


def gone(address: str) -> bool:
    port = urlsplit(address).port or 0
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            return True
        except TimeoutError:  # a busy machine
            continue
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", ""])
def test_a_foreign_host_is_refused(publisher: Publisher, host: str) -> None:
    status, message = ask(publisher.address, host=host)
    assert status == 400 and b"the page" not in message


def test_its_own_names_are_answered(publisher: Publisher) -> None:
    port = urlsplit(publisher.address).port
    for host in (None, "localhost", f"localhost:{port}", f"127.0.0.1:{port}"):
        assert ask(publisher.address, host=host) == (200, b"<p>the page</p>")
    assert ask(publisher.address, "/etc/passwd")[0] == 404


def test_nobody_else_reaches_it(publisher: Publisher) -> None:
    port = urlsplit(publisher.address).port or 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        try:
            other.connect(("192.0.2.1", 9))  # sends nothing: which address would be ours
        except OSError:
            pytest.skip("this machine has no other address")
        own = other.getsockname()[0]
    assert not own.startswith("127.")
    with pytest.raises(OSError):
        socket.create_connection((own, port), timeout=5)


def test_a_peer_from_elsewhere_is_refused_whatever_it_listens_on() -> None:
    async def answer(client: tuple[str, int] | None) -> int:
        live, sent = LiveEvents(), []
        live.add('page "<p>the page</p>"\n')
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "query_string": b"",
            "client": client,
        }
        scope |= {"headers": [(b"host", b"127.0.0.1")], "http_version": "1.1", "scheme": "http"}

        async def receive() -> dict[str, object]:
            return {"type": "http.request"}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        await app_of(live)(scope, receive, send)  # type: ignore[arg-type]
        return int(sent[0]["status"])

    def status(client: tuple[str, int] | None) -> int:
        with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have a loop in this one
            return apart.submit(asyncio.run, answer(client)).result()

    assert status(("127.0.0.1", 1234)) == 200
    assert status(("::1", 1234)) == 200
    for client in (("10.0.0.7", 1234), ("2001:db8::1", 1234), None):
        assert status(client) == 403


def test_who_comes_late_hears_all_epochs_and_the_last_of_the_rest(publisher: Publisher) -> None:
    for number in (1, 2):
        publisher.publish("epoch", {"number": number})
        publisher.publish("counters", {"at": number})
    ask(publisher.address)  # by now it has heard them
    connection = http.client.HTTPConnection(urlsplit(publisher.address).netloc, timeout=PATIENCE_S)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    lines = [answer.readline().decode() for _ in range(9)]
    headers = [line.split(" ", 1)[1].strip() for line in lines if line.strip()]
    assert headers == ["epoch", '{"number":1}', "epoch", '{"number":2}', "counters", '{"at":2}']
    publisher.publish("end", {"what": "over"})
    assert answer.readline() == b"event: end\n"
    publisher.close()
    assert answer.read().decode().startswith('data: {"what":"over"}')


def test_two_at_once_and_nothing_is_left(publisher: Publisher) -> None:
    other = Publisher()
    assert other.address != publisher.address
    other.publish("page", "another")
    assert ask(other.address) == (200, b"another")
    other.close()
    assert gone(other.address)
    assert ask(publisher.address)[0] == 200


def test_the_server_ends_with_its_run_however_that_ends() -> None:
    program = "from scenarios.live.publisher import Publisher\n"
    program += "import time\nmade = Publisher()\nprint(made.address, flush=True)\ntime.sleep(60)"
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    address = run.stdout.readline().strip()
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert gone(address)


def test_a_browser_that_does_not_read_does_not_grow_the_server() -> None:
    async def sent() -> int:
        live = LiveEvents()
        live.add("doing {}\n")
        stream = live.events()
        await anext(stream)  # it listens, and reads no more
        for number in range(20_000):
            live.add(f"counters {number}\n")
        return 1 + len([event async for event in stream])

    with ThreadPoolExecutor(1) as beside:  # this thread may have a loop, a browser's
        assert 2 <= beside.submit(lambda: asyncio.run(sent())).result() < 5000
