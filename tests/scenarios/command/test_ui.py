# SPDX-License-Identifier: Apache-2.0
"""``canary ui``: what the list shows, where its links lead, and what it never serves or does."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette

from canary import compare, run
from scenarios.command.ui import shelf_app
from tests.browser import SCHEMES, cut_off, opened
from tests.scenarios.conftest import Canary, refused

QUICK = {"backend": "flow", "epochs": 1, "methods": "canary,netbouncer"}
HOSTILE = "<script><b>'\"&%2e"


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs, one of them with a hostile name, and a comparison."""
    folder = tmp_path_factory.mktemp("shelf") / "runs"
    folder.mkdir()
    run(path=folder / "first", seed=1, **QUICK)  # type: ignore[arg-type]
    run(path=folder / "second", seed=2, **QUICK)  # type: ignore[arg-type]
    run("healthy", path=folder / HOSTILE, seed=2, **QUICK)  # type: ignore[arg-type]
    compare(seeds=[1, 2], path=folder / "compared", **QUICK)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def changed(shelf: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be changed."""
    return shutil.copytree(shelf, tmp_path / "runs")


def get(
    app: Starlette,
    path: str,
    host: str = "127.0.0.1:80",
    client: str = "127.0.0.1",
    query: str = "",
) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of an answer; the path comes to the application as it is."""
    sent: list[dict[str, object]] = []

    async def ask() -> None:
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode()}
        scope |= {"client": (client, 1234), "headers": [(b"host", host.encode())]}
        scope |= {"http_version": "1.1", "scheme": "http"}

        async def receive() -> dict[str, object]:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        await app(scope, receive, send)  # type: ignore[arg-type]

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have a loop in this one
        apart.submit(asyncio.run, ask()).result()
    start, *pieces = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}  # type: ignore[attr-defined]
    return int(start["status"]), headers, b"".join(p.get("body", b"") for p in pieces)  # type: ignore[call-overload, misc]


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_link_of_the_list_leads_to_a_page(shelf: Path) -> None:
    app, before = shelf_app(shelf), content(shelf)
    status, headers, body = get(app, "/")
    assert status == 200 and headers["cache-control"] == "no-store"
    addresses = re.findall(r'<th scope="row"><a href="([^"]*)">', body.decode())
    assert len(addresses) == 4
    for address in addresses:
        status, _, page = get(app, f"/{unquote(address)}")
        assert status == 200 and page.startswith(b"<!doctype html>")
        for file in re.findall(r'<li><a href="\./([^"]*)">', page.decode()):
            status, headers, saved = get(app, f"/{unquote(address)}{unquote(file)}")
            assert status == 200, file
            if file.endswith("/"):
                assert f"<h1>{file[:-1]}</h1>" in saved.decode()
                continue
            assert headers["content-disposition"] == "attachment"
            assert "sandbox" in headers["content-security-policy"]
            assert saved == (shelf / unquote(address) / unquote(file)).read_bytes()
    assert content(shelf) == before, "looking changes nothing"


def test_it_lists_what_canary_runs_lists(shelf: Path, canary: Canary) -> None:
    _, _, body = get(shelf_app(shelf), "/")
    figures = json.loads(canary("runs", "--in", str(shelf), "--json").out)["runs"]
    assert len(figures) == 3 and body.decode().count("<tr data-words=") == 3
    for each in figures:
        assert f"SEED={each['settings']['seed']} " in body.decode()
        assert f"{each['f1']['canary']:.3f}" in body.decode()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", ""])
def test_a_foreign_host_is_refused(shelf: Path, host: str) -> None:
    status, _, body = get(shelf_app(shelf), "/", host=host)
    assert status == 400 and b"first" not in body


def test_a_peer_from_elsewhere_is_refused(shelf: Path) -> None:
    for client in ("10.0.0.7", "2001:db8::1"):
        assert get(shelf_app(shelf), "/", client=client)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/first/../../secret",
        "/first/../../secret/",
        "//etc/passwd",
        "/first//etc/passwd",
        "/./first/",
        "/.hidden/",
        "/first/.hidden",
        "/first/registers/0",
        "/first/registers/registers/",
        "/first/pipe",
        "/link/",
        "/link/config.json",
        "/outside.json",
        "/first/out/config.json",
        "/first\0/",
        "/first/config.json\0",
        "/notes/",
        "/notes/mine.txt",
        "/mine.txt",
        "/a/b/c/d/e/f/",
        "/" + "a" * 5000,
    ],
)
def test_nothing_else_is_served(path: str, changed: Path) -> None:
    (changed.parent / "secret").write_text("secret")
    (changed / "mine.txt").write_text("secret")
    (changed / "notes").mkdir()
    (changed / "notes" / "mine.txt").write_text("secret")
    (changed / "first" / ".hidden").write_text("secret")
    shutil.copytree(changed / "second", changed / ".hidden")
    os.mkfifo(changed / "first" / "pipe")
    (changed / "link").symlink_to(changed / "second")
    (changed / "first" / "out").symlink_to(changed / "second")
    status, _, body = get(shelf_app(changed), path)
    assert status == 404 and body == b"there is no such page"


def test_a_page_that_lies_in_a_run_is_never_sent(changed: Path) -> None:
    (changed / "first" / "index.html").write_text("<script>evil()</script>")
    (changed / "compared" / "index.html").write_text("<script>evil()</script>")
    app = shelf_app(changed)
    for name in ("first", "compared"):
        for path in (f"/{name}/", f"/{name}/index.html"):
            status, _, body = get(app, path)
            assert status == 200 and b"evil()" not in body


def test_a_link_in_a_run_is_one_line(changed: Path) -> None:
    """Through it a file elsewhere would be read."""
    shutil.move(changed / "first" / "links.parquet", changed.parent / "links.parquet")
    (changed / "first" / "links.parquet").symlink_to(changed.parent / "links.parquet")
    app = shelf_app(changed)
    status, _, body = get(app, "/first/")
    assert status == 422 and b"is a symbolic link" in body and body.count(b"\n") == 0
    assert get(app, "/first/links.parquet")[0] == 404
    status, _, body = get(app, "/")
    assert status == 200 and b"cannot be read" in body and b'href="first/"' not in body


def test_damage_is_one_line_and_leaves_the_rest(changed: Path) -> None:
    (changed / "first" / "summary.json").write_text("{")
    (changed / "compared" / "results.parquet").write_bytes(b"PAR1")
    (changed / "reproduce" / "one").mkdir(parents=True)
    (changed / "reproduce" / "one" / "setting.json").write_text('{"experiment": "no such"}')
    app = shelf_app(changed)
    status, _, body = get(app, "/")
    assert status == 200 and body.count(b"cannot be read: ") == 3
    assert body.count(b"<tr data-words=") == 2
    for path in ("/first/", "/compared/", "/reproduce/one/"):
        status, headers, body = get(app, path)
        assert status == 422 and b"\n" not in body
        assert headers["content-type"].startswith("text/plain")


def test_a_page_is_of_the_data_as_they_are_now(changed: Path) -> None:
    app = shelf_app(changed)
    first = get(app, "/first/")[2]
    shutil.rmtree(changed / "first")
    assert get(app, "/first/")[0] == 404
    run("healthy", path=changed / "first", seed=1, **QUICK)  # type: ignore[arg-type]
    assert get(app, "/first/")[2] != first


def test_the_difference_of_two_runs(shelf: Path) -> None:
    app = shelf_app(shelf)
    status, _, body = get(app, "/difference", query="of=first&and=second")
    assert status == 200 and b"SEED         1 -&gt; 2" in body
    for query in ("", "of=first", "of=first&and=compared", "of=first&and=../runs/second"):
        assert get(app, "/difference", query=query)[0] == 404


@pytest.mark.parametrize(("width", "dark"), SCHEMES)
def test_the_list_in_a_browser(width: int, dark: bool, shelf: Path, chromium: Browser) -> None:
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "scenarios.command.cli", "ui", "--in", str(shelf)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    address = server.stdout.readline().split()[1]
    with opened(chromium, address, width, dark) as it:
        page = it.page
        assert page.locator("b").count() == 0  # the hostile name is text
        assert cut_off(page) == []
        page.locator("#filter").fill("seed=2 faulty")
        names = page.locator("#list tbody tr:visible th").all_inner_texts()
        assert names == ["second"] and page.inner_text("#shown") == "1 of 3"
        page.locator("#filter").fill("")
        boxes = page.locator("#list input")
        assert not page.locator("#two").is_visible()
        boxes.nth(0).check()
        boxes.nth(1).check()
        page.locator("#difference").click()
        page.wait_for_url(f"{address}difference**")
        assert HOSTILE in page.inner_text("pre")
        assert cut_off(page) == []
        page.locator("header a").click()
        page.wait_for_url(address)
        page.locator("#list th a").first.click()
        page.wait_for_url(address + quote(HOSTILE) + "/")
        assert page.locator("#fabric svg").count() >= 1
        assert it.clean()
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate()
    assert (server.returncode, errors) == (
        130,
        "canary: interrupted: the page is no longer served\n",
    )
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)


def test_no_folder_is_one_line(tmp_path: Path, canary: Canary) -> None:
    refused(canary("ui", "--in", str(tmp_path / "none")), "there is no folder")
