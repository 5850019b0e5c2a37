# SPDX-License-Identifier: Apache-2.0
"""What is watched as a browser shows it; and that the run is the same as ever."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from analysis.methods.diagnosis import Diagnosis
from analysis.pages.live_page import live_page
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from scenarios.live.network import Live
from scenarios.live.publisher import Publisher
from scenarios.live.watched_run import WatchedNet, WatchedRun
from testbed.fabric.clos import Fabric
from testbed.fabric.fat_tree import FatTree
from testbed.network.requirements import missing
from testbed.record.run import RunDirectory
from tests.browser import SCHEMES, cut_off, opened
from tests.conftest import SMALL, inputs_for
from tests.patience import PATIENCE_S
from tests.real_packets import paced, words
from tests.scenarios.live.test_server import ask, gone

LINKS = ".fabric .links .link"


def until(page: Page, id_: str, pattern: str, seconds: float = 30) -> str:
    """The text of an element once it holds something; the page lets no script wait."""
    message = ""
    for _ in range(int(10 * seconds)):
        message = page.inner_text(f"#{id_}")
        if re.search(pattern, message):
            return message
        page.wait_for_timeout(100)
    raise AssertionError(f"#{id_} says {message!r}, not {pattern!r}")


def tell(publisher: Publisher, at: float, packets: list, drops: list, faults: list) -> None:
    publisher.publish("losses", {"at": at, "packets": packets, "drops": drops})
    publisher.publish("counters", {"at": at, "packets": packets, "faults": faults})


def test_a_watched_run_is_the_same_run(tmp_path: Path, finished_run: RunDirectory) -> None:
    publisher = Publisher()
    watched = WatchedRun(publisher)
    path = tmp_path / "run"
    run_experiment(layout_of(SMALL), path, observer=watched)
    status, page = ask(publisher.address)
    assert status == 200 and b"faulty_links: a K=4 fat-tree" in page
    watched.close()
    publisher.close()
    assert gone(publisher.address)
    for file in sorted(finished_run.path.rglob("*.parquet")):
        name = file.relative_to(finished_run.path)
        assert (path / name).read_bytes() == file.read_bytes(), name


@pytest.mark.parametrize(("width", "dark"), SCHEMES)
def test_the_page_shows_what_comes(width: int, dark: bool, chromium: Browser) -> None:
    fabric, publisher = FatTree(4), Publisher()
    n, broken = fabric.n_links, fabric.link("agg0_1->core2")
    faults = [(broken, 0.2)]
    publisher.publish(
        "page", live_page(fabric, fabric.tier == 0, "</script><i>", faults, 3, "canary")
    )
    with opened(chromium, publisher.address, width, dark) as it:
        page = it.page
        assert page.locator("h1").inner_text() == "</script><i>"
        assert page.locator(LINKS).count() == n
        assert page.locator(f"{LINKS}.faulty").count() == 1
        publisher.publish("doing", {"what": "emulation", "share": 0.25})
        until(page, "status", "emulation, 25 %")
        packets, drops = [1000] * n, [0] * n
        assert cut_off(page) == []
        publisher.publish("epoch", {"number": 1, "sent": 900, "lost": 0, "flagged": None})
        until(page, "epochs", "of them lost")
        most = page.locator("#epochs figure").last.locator("text").first
        assert most.text_content() == "0 %", "what is marked beside a chart of zeros"
        tell(publisher, 1, [0] * n, drops, faults)
        until(page, "sums", "^0 packets over links")
        page.locator("#panel .link-name").focus()
        drops[broken] = 250
        tell(publisher, 2, packets, drops, faults)
        until(page, "sums", f"^{1000 * n:,} packets over links, 250 dropped by faults")
        assert page.evaluate("document.activeElement.innerText") == "agg0_1->core2"
        row = page.locator("#links tbody tr").first
        message = " ".join(row.inner_text().split())
        assert message == "agg0_1->core2 20 % – 1,000 1,000 250 20 %"
        wrong = fabric.link("tor0_0->agg0_0")
        ended = {"number": 1, "sent": 900, "lost": 9, "flagged": [broken, wrong]}
        publisher.publish("epoch", ended)
        until(page, "verdict", "canary, after 1 of 3 epochs: 1 found, 0 missed, 1 blamed wrongly")
        assert page.locator(".fabric .marks .right, .fabric .marks .wrong").count() == 2
        row.locator("button").press("Enter")
        assert "loses 20 %" in until(page, "panel", "agg0_1->core2")
        page.set_viewport_size({"width": width + 60, "height": 900})
        assert page.locator(".fabric .chosen .line").count() == 1, "chosen still, drawn anew"
        other = fabric.link("core0->agg3_0")
        tell(publisher, 3, packets, drops, [[other, 0.01]])
        until(page, "verdict", "0 found, 1 missed, 2 blamed wrongly")
        assert page.locator(f"{LINKS}.faulty").count() == 1
        assert cut_off(page) == []
        publisher.publish("end", {"what": "over: well"})
        until(page, "status", "over: well")
        publisher.close()
        page.wait_for_timeout(200)
        assert page.inner_text("#status") == "over: well"
        assert it.clean()


def test_names_are_text_and_many_links_are_a_table(chromium: Browser) -> None:
    lower = np.arange(3000) % 2
    names = ("<script>alert(1)</script>", "'\"&amp;</title>", "up")
    fabric = Fabric(names, np.array([0, 0, 1]), lower, lower * 0 + 2)
    publisher = Publisher()
    publisher.publish("page", live_page(fabric, fabric.tier == 0, "large", [(0, 1.0)], 0))
    with opened(chromium, publisher.address) as it:
        n = fabric.n_links
        tell(publisher, 1, [5] * n, [1] * n, [[0, 1.0]])
        until(it.page, "sums", "packets over links")
        assert it.page.locator(LINKS).count() == 0
        assert it.page.locator("#links tbody tr").count() == 64
        assert it.page.locator("#links th .link-name").first.inner_text() == f"{names[0]}->up"
        assert it.page.locator("script").count() == 2
        assert it.clean()
    publisher.close()


def test_a_network_at_the_prompt_is_watched(chromium: Browser) -> None:
    """In virtual time here; the prompt's own is under Mininet."""
    given = {"backend": "virtual", "epochs": 1, "load": 0.005, "faults": "none"}
    inputs = inputs_for(make_settings(given))
    with open_backend(inputs, Path()) as backend:
        live = Live(inputs, backend)
        watched = WatchedNet(backend.network, live)
        with opened(chromium, watched.address) as it:
            until(it.page, "panel", "Nothing is broken now")
            link = live.topology.link("agg0_1->core2")
            live.fault(link, 0.5)
            until(it.page, "panel", "Broken now\\s+agg0_1->core2 50 %")
            live.meters()
            until(it.page, "sums", "[1-9]\\d* dropped by faults")
            rate = np.zeros(live.topology.n_links)
            found = Diagnosis("007", "undirected", np.array([link], np.int32), 1 - rate, rate, 0.1)
            watched.verdicts({"007": found, "mle": found})
            until(
                it.page, "verdict", "^007, as asked last: 1 found, 0 missed, 0 blamed wrongly, of"
            )
            groups = it.page.eval_on_selector_all(
                "#method optgroup", "all => all.map(g => [g.label, g.innerText.trim()])"
            )
            assert groups == [["as published", "007 *"], ["this project's", "mle *"]]
            live.heal(link)
            until(it.page, "panel", "Nothing is broken now")
            watched.close()
            until(it.page, "status", "ended: the network is down")
            assert it.clean()
        assert gone(watched.address)


@pytest.mark.root
@pytest.mark.skipif(bool(missing("softswitch")), reason=missing("softswitch") or "never")
def test_the_page_changes_while_real_packets_flow_and_ctrl_c_ends_both(
    tmp_path: Path, chromium: Browser
) -> None:
    given = ["K=4", "BACKEND=softswitch", *words(paced(20, 1500, 0.2)), "TCP=0", "WATCH=1"]
    run = subprocess.Popen(
        [sys.executable, "-m", "scenarios", "run", *given, "RUN=here"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"FAULTS": "not of ours"},
    )
    assert run.stdout is not None
    address = next(line for line in run.stdout if line.startswith("watch: ")).split()[1]
    with opened(chromium, address) as it:
        before = until(it.page, "sums", "[1-9][\\d,]* packets over links")
        until(it.page, "verdict", "canary, after 1?\\d of 20 epochs")  # a busy one skips some
        assert it.page.inner_text("#sums") != before
        assert ask(address, host="evil.example")[0] == 400
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 130
        assert errors.splitlines()[-1].startswith("canary: interrupted: "), errors
        until(it.page, "status", "^ended: ")
        assert it.clean()
    assert gone(address)
