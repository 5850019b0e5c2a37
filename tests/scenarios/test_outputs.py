# SPDX-License-Identifier: Apache-2.0
"""Every option that writes × everything that may be there: nothing of others is changed."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.evaluation.parameter_sets import Calibrated, write_set
from analysis.evaluation.ranking import COLUMNS
from analysis.pages.template import ASSETS, write_page
from scenarios.command.classroom import make_class
from scenarios.command.export_lab import export_lab
from scenarios.command.gates import Gate
from scenarios.command.imports import import_to
from scenarios.command.localize import RANKING, export
from scenarios.command.plan import write_plan
from scenarios.experiment.request import Scenario, make_request
from scenarios.many.compare import _is_key as is_comparison_key
from scenarios.many.work import hold_folder, is_of, write_key
from scenarios.papers.chapter import write_chapter
from scenarios.papers.experiment import Effort
from scenarios.papers.registry import EXPERIMENTS
from scenarios.papers.reproduce import MARK, need_out, reproduce
from scenarios.papers.reproduce import _is_key as is_reproduction_key
from scenarios.papers.results import write_results
from scenarios.process.new_file import create_file
from testbed.errors import UserError
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.probe_matrix.matrix import probe_matrix
from testbed.network.packet_sockets import CAPTURE_HEAD
from testbed.record.files import write_columns
from testbed.record.run import RunWriter
from tests.conftest import quiet
from tests.scenarios.conftest import Canary, refused
from tests.scenarios.papers.test_frame import Here
from tests.testbed.record.test_files import full_disk


@dataclass(frozen=True)
class Sources:
    """What the outputs are made from: a finished run, and a folder with a reproduction."""

    run: Path
    reproduced: Path


@pytest.fixture(scope="module")
def sources(run_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    out = tmp_path_factory.mktemp("reproduced")
    experiment = EXPERIMENTS["canary-table-3"]
    reproduce(experiment, quiet, out, Effort(draws=2, small=True), workers=Here(1))
    return Sources(run_path, out)


# ---- files ---------------------------------------------------------------------------------------


def ranking(path: Path, sources: Sources) -> None:
    write_columns(path, {name: ["a"] for name in COLUMNS}, RANKING)


def plan(path: Path, sources: Sources) -> None:
    write_plan(probe_matrix(FatTree(4), 1, 1), path)


def parameters(path: Path, sources: Sources) -> None:
    entry = {"parameters": {"p_bad": 0.1}, "f1": 1, "precision": 1, "recall": 1, "cases": 1}
    entry |= {"tried": 1}
    trained = {"rule": "f1", "runs": []}
    write_set(path, Calibrated.model_validate({"methods": {"flock": entry}, "trained": trained}))


def results(path: Path, sources: Sources) -> None:
    write_results(path, sources.reproduced)


def page(path: Path, sources: Sources) -> None:
    head = (ASSETS / "base.html").read_text().partition("{{")[0]
    write_page(path, f"{head}hash'; \">\n<p>a page</p>\n")


def capture(path: Path, sources: Sources) -> None:
    try:
        file = create_file(path, CAPTURE_HEAD)
    except OSError as error:  # which the prompt turns into a line
        raise UserError(str(error)) from None
    with file:
        file.write(CAPTURE_HEAD + bytes(100))


def junit(path: Path, sources: Sources) -> None:
    method = {"native": "links", "links": {"f1": 1.0, "false_negatives": 0, "false_positives": 0}}
    figures = {"methods": {"canary": method | {"telemetry_bytes": 1, "probe_packets": 0}}}
    Gate.of(None, path, None).passes("a run", figures)


FILES: dict[str, Callable[[Path, Sources], None]] = {
    "ranking.parquet": ranking,
    "ranking.csv": ranking,
    "paths.parquet": plan,
    "parameters.yaml": parameters,
    "results.json": results,
    "index.html": page,
    "link.pcap": capture,
    "junit.xml": junit,
}


NO_FIGURES: dict[str, Any] = {"methods": {}}


def text(path: Path) -> None:
    path.write_text("dear diary,\n")


def of_another_kind(path: Path) -> None:
    """A file of the same format that some other program wrote."""
    match path.suffix:
        case ".parquet":
            write_columns(path, {"mine": np.arange(3), "method": np.arange(3)})
        case ".csv":
            path.write_text("method,rank,mine\na,1,2\n")
        case ".json":
            path.write_text(json.dumps({"canary-8": {"draws": 3}, "mine": 1}))
        case ".yaml":
            path.write_text("methods: [mine]\n")
        case ".xml":
            path.write_text('<testsuites name="pytest"></testsuites>\n')
        case ".html":
            path.write_text("<!doctype html>\n<html lang='en'>my page</html>\n")
        case _:
            path.write_bytes(CAPTURE_HEAD[:20] + b"\1\2\3\4" + bytes(40))


def empty_object(path: Path) -> None:
    path.write_text("{}\n")


def link(path: Path) -> None:
    (path.parent / "precious").write_text("kept")
    path.symlink_to("precious")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this root may make no devices")


def folder(path: Path) -> None:
    path.mkdir()
    (path / "precious").write_text("kept")


FOREIGN = (text, of_another_kind, empty_object, link, dangling, pipe, unix_socket, device, folder)


def snapshot(folder: Path) -> dict[str, Any]:
    """Everything below a folder: kinds, rights, contents, where links lead."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content: Any = state.st_rdev
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = state.st_mode, content
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "place"
    made.mkdir()
    yield made
    made.chmod(0o755)


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", FILES)
def test_what_is_not_ours_stays(
    sources: Sources, place: Path, name: str, foreign: Callable[[Path], None]
) -> None:
    foreign(place / name)
    before = snapshot(place)
    with pytest.raises(UserError) as raised:
        FILES[name](place / name, sources)
    assert "\n" not in str(raised.value) and name in str(raised.value)
    assert snapshot(place) == before


@pytest.mark.parametrize("name", FILES)
def test_what_is_ours_is_replaced(sources: Sources, place: Path, name: str) -> None:
    write = FILES[name]
    write(place / name, sources)
    first = (place / name).read_bytes()
    write(place / name, sources)
    assert (place / name).read_bytes() == first and len(list(place.iterdir())) == 1
    (place / name).write_bytes(b"")  # as mktemp makes it
    write(place / name, sources)
    assert (place / name).read_bytes() == first


@pytest.mark.parametrize("name", [name for name in FILES if name != "link.pcap"])
def test_what_is_ours_and_read_only_stays(sources: Sources, place: Path, name: str) -> None:
    FILES[name](place / name, sources)
    (place / name).chmod(0o444)
    before = snapshot(place)
    with pytest.raises(UserError, match="is read-only"):
        FILES[name](place / name, sources)
    assert snapshot(place) == before


@pytest.mark.parametrize("name", [name for name in FILES if name != "link.pcap"])
def test_a_full_disk_leaves_what_was_there(sources: Sources, place: Path, name: str) -> None:
    FILES[name](place / name, sources)
    before = snapshot(place)
    with full_disk(), pytest.raises((UserError, OSError)):
        FILES[name](place / name, sources)
    assert snapshot(place) == before


def binary(path: Path) -> None:
    path.write_bytes(CAPTURE_HEAD)


@pytest.mark.parametrize(
    "foreign",
    [binary, link, dangling, pipe, unix_socket, device, folder],
    ids=lambda each: each.__name__,
)
def test_a_summary_is_added_to_text_alone(place: Path, foreign: Callable[[Path], None]) -> None:
    """``--summary`` adds to a file, as GitHub asks; it followed links and waited for pipes."""
    gate = Gate(summary=place / "summary.md")
    foreign(place / "summary.md")
    before = snapshot(place)
    for add in (
        lambda: Gate.of(None, None, gate.summary),
        lambda: gate.passes("a run", NO_FIGURES),
    ):
        with pytest.raises(UserError, match=r"--summary .*/summary\.md") as raised:
            add()
        assert "\n" not in str(raised.value) and snapshot(place) == before


def test_a_summary_is_added_whole_or_not_at_all(place: Path) -> None:
    gate = Gate(summary=place / "summary.md")
    text(place / "summary.md")
    gate.passes("a run", NO_FIGURES)
    added = (place / "summary.md").read_text()
    assert added.startswith("dear diary,\n### a run\n")
    with full_disk(), pytest.raises(OSError):
        gate.passes("a run", NO_FIGURES)
    assert (place / "summary.md").read_text() == added
    (place / "summary.md").chmod(0o444)
    with pytest.raises(UserError, match="is read-only"):
        gate.passes("a run", NO_FIGURES)


def test_a_file_that_appears_while_ours_is_made_stays(sources: Sources, place: Path) -> None:
    from testbed.record.atomic import output_file

    path = place / "ranking.csv"
    with pytest.raises(UserError), output_file(path, RANKING) as new:
        new.write_text("ours")
        path.write_text("theirs")
    assert path.read_text() == "theirs" and len(list(place.iterdir())) == 1


def test_results_of_nothing_replace_nothing(canary: Canary, tmp_path: Path) -> None:
    """``RESULTS=notes.txt`` was replaced by ``{}``, whatever it was, with exit code 0."""
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    out = f"OUT={tmp_path / 'none'}"
    refused(canary("reproduce", f"RESULTS={notes}", out), "is no file of results")
    assert notes.read_text() == "mine"
    absent = tmp_path / "results.json"
    refused(canary("reproduce", f"RESULTS={absent}", out), "has no results to write")
    assert not absent.exists()


def test_a_command_says_what_it_replaced(canary: Canary, sources: Sources, tmp_path: Path) -> None:
    words = ("reproduce", f"RESULTS={tmp_path / 'r.json'}", f"OUT={sources.reproduced}")
    first, second = canary(*words), canary(*words)
    assert (first.code, second.code) == (0, 0)
    assert "replaced" not in first.out and "(replaced an earlier one)" in second.out


# ---- folders -------------------------------------------------------------------------------------


def a_run(path: Path, sources: Sources) -> None:
    RunWriter(path).abandon()


def a_comparison(path: Path, sources: Sources) -> None:
    with hold_folder(path, "comparison.json", "comparison", is_comparison_key) as file:
        is_of(file, {"scenario": "a", "backend": "flow", "methods": [], "code_sha256": "0"})


def a_reproduction(path: Path, sources: Sources) -> None:
    with hold_folder(path, MARK, "reproduction", is_reproduction_key):
        pass


def reproductions(path: Path, sources: Sources) -> None:
    need_out(path)


def an_export(path: Path, sources: Sources) -> None:
    export(sources.run, path, ".csv")


def an_import(path: Path, sources: Sources) -> None:
    edges = sources.reproduced / "edges.txt"
    edges.write_text("0 2\n1 2\n")
    import_to("edgelist", [edges], path, tors="[01]")


CLASS = {"k": 4, "backend": "virtual", "epochs": 1, "epoch_ms": 50}


def a_class(path: Path, sources: Sources) -> None:
    settings = make_request(None, CLASS).settings()
    make_class("faulty_links", Scenario(), settings, 1, 1, path, quiet)


def a_chapter(path: Path, sources: Sources) -> None:
    write_chapter([EXPERIMENTS["canary-table-3"]], sources.reproduced, path)


def a_lab(path: Path, sources: Sources) -> None:
    export_lab(make_request(None, {"k": 4, "backend": "bmv2"}), "", path)


HOLDERS = (reproductions,)
"""What writes into folders of its own in a folder, which may have other things."""
FOLDERS = (
    a_run,
    a_comparison,
    a_reproduction,
    an_export,
    an_import,
    a_class,
    a_chapter,
    a_lab,
)


def full(path: Path) -> None:
    path.mkdir()
    (path / "precious").write_text("kept")
    (path / "index.html").write_text("my page")


def of_that_name(path: Path) -> None:
    """A folder whose files have the names of ours: ``setting.json`` is a common one."""
    full(path)
    (path / "parts").mkdir()
    (path / "parts" / "precious.parquet").write_text("kept")
    (path / "fabric.csv").write_text("mine,not,theirs\n")
    for name in ("comparison.json", "sweep.json", MARK):
        (path / name).write_text(json.dumps({"theme": "dark"}))


def with_empty_marks(path: Path) -> None:
    full(path)
    for name in ("comparison.json", "sweep.json", MARK):
        (path / name).touch()


def link_to_folder(path: Path) -> None:
    full(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "foreign",
    [text, link, dangling, pipe, unix_socket, full, of_that_name, with_empty_marks, link_to_folder],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("write", [*FOLDERS, *HOLDERS], ids=lambda each: each.__name__)
def test_a_folder_of_others_stays(
    sources: Sources,
    place: Path,
    write: Callable[[Path, Sources], None],
    foreign: Callable[[Path], None],
) -> None:
    foreign(place / "out")
    before = snapshot(place)
    if write in HOLDERS and (place / "out").is_dir() and not (place / "out").is_symlink():
        write(place / "out", sources)
        assert snapshot(place) == before
        return
    with pytest.raises(UserError) as raised:
        write(place / "out", sources)
    assert "\n" not in str(raised.value) and "out" in str(raised.value)
    assert snapshot(place) == before


@pytest.mark.parametrize("write", [*FOLDERS, *HOLDERS], ids=lambda each: each.__name__)
def test_an_absent_or_empty_folder_is_taken(
    sources: Sources, place: Path, write: Callable[[Path, Sources], None]
) -> None:
    write(place / "absent", sources)
    (place / "empty").mkdir()
    write(place / "empty", sources)
    (place / "disk").mkdir()
    (place / "runs").symlink_to("disk")  # a parent may lead to another disk
    write(place / "runs" / "out", sources)


# ---- kills ---------------------------------------------------------------------------------------

WRITERS = [*FILES, "export"]
KILLS = [pytest.param(20), pytest.param(1000, marks=pytest.mark.nightly)]


def write_for_ever(place: Path, sources: Sources, name: str) -> None:
    """Write one output again and again."""
    for number in range(10**9):
        if name == "export":
            export(sources.run, place / f"export-{number}", ".csv")
        else:
            FILES[name](place / name, sources)


@pytest.mark.parametrize("kills", KILLS)
def test_a_kill_leaves_the_old_or_the_new(sources: Sources, tmp_path: Path, kills: int) -> None:
    rng = random.Random(57)
    for number in range(kills):
        name = WRITERS[number % len(WRITERS)]
        place = tmp_path / str(number)
        place.mkdir()
        (place / "precious").write_text("kept")
        if name == "export":
            export(sources.run, place / "export-0-whole", ".csv")
            whole = {p.name: p.read_bytes() for p in (place / "export-0-whole").iterdir()}
        else:
            FILES[name](place / name, sources)
            whole = {name: (place / name).read_bytes()}
        child = os.fork()
        if child == 0:
            try:
                write_for_ever(place, sources, name)
            finally:
                os._exit(1)
        time.sleep(rng.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, name
        assert (place / "precious").read_text() == "kept"
        for path in place.rglob("*"):
            if path.name in whole and not any(".partial-" in part for part in path.parts):
                if name == "link.pcap":  # it grows as packets come
                    assert whole[path.name].startswith(path.read_bytes())
                else:
                    assert path.read_bytes() == whole[path.name], (number, path)
        if name == "export":  # the same command goes on where one was killed
            begun = sorted(place.glob("export-*"))[-1]
            if {path.suffix for path in begun.iterdir()} != {".csv"} or len([*begun.iterdir()]) < 2:
                export(sources.run, begun, ".csv")
        else:
            FILES[name](place / name, sources)


def test_a_key_that_is_replaced_is_never_half_of_it(tmp_path: Path) -> None:
    file = tmp_path / "setting.json"
    write_key(file, {"a": "x" * 1000})
    write_key(file, {"b": 1})
    assert json.loads(file.read_text()) == {"b": 1} and file.stat().st_size > 1000
