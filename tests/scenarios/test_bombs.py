# SPDX-License-Identifier: Apache-2.0
"""Files that a stranger made to take all memory or time: one line, whichever reader meets them."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.evaluation.parameter_sets import read_set
from analysis.importers.registry import IMPORTERS
from analysis.methods.registry import find_methods
from analysis.telemetry.reading import read_observations
from canary_softswitch.device.config import read_config
from canary_softswitch.runtime.program import Program
from scenarios.command.imports import import_to
from scenarios.command.show import make_page
from scenarios.experiment.request import make_request
from scenarios.many.calibrate import read_training
from scenarios.many.compare import read_comparison
from scenarios.many.sweep import read_sweep
from testbed.dataplane import PROGRAM
from testbed.errors import UserError
from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import Fault
from testbed.faults.specification import parse_faults
from testbed.record.fabric_file import read_fabric, write_fabric
from testbed.record.files import read_arrow
from testbed.record.run import RunDirectory
from testbed.record.truth import failed_devices, links_with_matches
from testbed.traffic.capture import read_capture
from tests.conftest import quiet

MEMORY, SECONDS = 1 << 30, 60
"""Bytes that reading a file may take more, and its processor time (a sixth of it as a rule)."""


class Figure(NamedTuple):
    """What a reader took for a file.

    Attributes:
        test: The test.
        seconds: Processor time, that of its child processes included.
        memory: Bytes that the process or a child took at most, beyond what it had.
        message: The line.
    """

    test: str
    seconds: float
    memory: int
    message: str


FIGURES: list[Figure] = []
"""Filled by the tests; `python -m tests.bench.bombs` prints them."""


def measured(read: Callable[[], object]) -> str:
    """The one line that a reader ends with, in a process of its own that is measured."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = sum(os.times()[:4])
        try:
            read()
            message = "read"
        except UserError as error:
            message = str(error)
        except BaseException as error:
            message = f"defect: {type(error).__name__} {error}"
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        most = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before)
        spent = sum(os.times()[:4]) - start
        os.write(there, json.dumps([message, most << 10, spent]).encode())
        os._exit(0)
    os.close(there)
    with open(here, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0 and answer, f"ended by {status}"
    message, memory, seconds = json.loads(answer)
    FIGURES.append(Figure(os.environ["PYTEST_CURRENT_TEST"], seconds, max(memory, 0), message))
    assert memory < MEMORY, f"{memory >> 20} MiB"
    assert "\n" not in message and not message.startswith("defect"), message
    return message


# ---- Parquet -------------------------------------------------------------------------------------


def dictionary_bomb(path: Path) -> None:
    """4 GB of text in 700 bytes: one text of a MiB, and 4,000 rows that have it."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4_000, np.int32)), ["x" * (1 << 20)])
    pq.write_table(pa.table({"src": text}), path, compression="zstd")


def row_bomb(path: Path) -> None:
    """800 MB of equal numbers in half a MB."""
    numbers = pa.table({"link": np.zeros(20_000_000, np.int64)})
    with pq.ParquetWriter(path, numbers.schema, compression="zstd") as writer:
        for _ in range(5):
            writer.write_table(numbers, row_group_size=20_000_000)


def block_bomb(path: Path) -> None:
    """300 MB of zeros in 10 kB."""
    zeros = pa.table({"src": pa.array([bytes(100 << 20)], pa.binary())})
    with pq.ParquetWriter(path, zeros.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(3):
            writer.write_table(zeros)


PARQUET = (dictionary_bomb, row_bomb, block_bomb)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bombs")
    child = os.fork()  # this process would keep the memory, and the trial would have it, too
    if child == 0:
        for make in PARQUET:
            make(folder / f"{make.__name__}.parquet")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return {make.__name__: folder / f"{make.__name__}.parquet" for make in PARQUET}


@pytest.mark.parametrize("bomb", [make.__name__ for make in PARQUET])
def test_parquet(bombs: dict[str, Path], run_path: Path, tmp_path: Path, bomb: str) -> None:
    path = bombs[bomb]
    run = Path(shutil.copytree(run_path, tmp_path / "run"))
    shutil.copy(path, run / "flows.parquet")
    (tmp_path / "comparison.json").touch()
    shutil.copy(path, tmp_path / "results.parquet")
    write_fabric(tmp_path / "fabric.csv", FatTree(4))
    numbered = read_fabric(tmp_path / "fabric.csv")
    for read in (
        lambda: read_fabric(path),
        lambda: read_observations(path, numbered),
        lambda: read_arrow(path),
        lambda: RunDirectory(run, trust=True).table("flows"),
        lambda: read_comparison(tmp_path),
    ):
        assert "takes more memory or time than a table of its size" in measured(read)


def test_what_people_have_is_read(tmp_path: Path) -> None:
    """A table of flows with columns that are constant, whose file is a thousandth of them."""
    n = 10_000_000
    flows = pa.table({"sent": np.full(n, 7), "lost": np.zeros(n, np.int64)})
    pq.write_table(flows, tmp_path / "flows.parquet", compression="zstd")
    assert read_arrow(tmp_path / "flows.parquet").num_rows == n


def test_a_gzip_bomb_of_observations(tmp_path: Path) -> None:
    path = tmp_path / "observations.csv.gz"
    path.write_bytes(gzip.compress(b"\n" * (1 << 20)) * 1024)
    write_fabric(tmp_path / "fabric.csv", FatTree(4))
    numbered = read_fabric(tmp_path / "fabric.csv")
    assert "when it is unpacked" in measured(lambda: read_observations(path, numbered))


def test_a_gzip_bomb_of_packets(tmp_path: Path) -> None:
    path = tmp_path / "packets.pcap.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
        file.write(bytes(4 << 20))
    assert measured(lambda: read_capture(path, 1.0)) != "read"


# ---- YAML ----------------------------------------------------------------------------------------


def layers(first: str, each: Callable[[str], str]) -> str:
    """Ten layers of aliases, each nine times the one below."""
    lines = [f"a0: &a0 {first}"]
    for i in range(10):
        lines.append(f"a{i + 1}: &a{i + 1} {each(','.join([f'*a{i}'] * 9))}")
    return "\n".join(lines) + "\n"


SPANS = ",".join(f"[{i}.1, {i}.2]" for i in range(100_000))
YAML = {
    "aliases": layers("[x]", lambda inner: f"[{inner}]"),
    "merges": layers("{x: 1}", lambda inner: f"{{<<: [{inner}]}}"),
    "itself": "faults: &a [*a]\n",
    "deep": "faults: " + "[" * 1_000_000,
    "deep keys": "".join(" " * i + "a:\n" for i in range(2000)),
    "spans": f"faults:\n- link: tor0_0->agg0_0\n  rate: 0.1\n  schedule: [{SPANS}]\n",
    "long": "faults: " + "x" * (5 << 20),
}
YAML_READERS: dict[str, Callable[[Path], object]] = {
    "FAULTS": lambda path: parse_faults(str(path), FatTree(4), 1),
    "CONFIG": lambda path: make_request(None, {}, path),
    "PARAMETERS": lambda path: read_set(str(path)),
    "TRAIN": lambda path: read_training(path, quiet),
}


@pytest.mark.parametrize(
    ("bomb", "reader"),
    # To parse many spans takes seconds, whatever they are for: only a fault has some.
    [(b, reader) for b in YAML for reader in YAML_READERS if b != "spans" or reader == "FAULTS"],
)
def test_yaml(tmp_path: Path, bomb: str, reader: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(YAML[bomb])
    assert "bomb.yaml" in measured(lambda: YAML_READERS[reader](path))


def test_ten_thousand_faults_are_read(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    lines = (f"- {{link: tor{i}_0->agg{i}_0, rate: 0.05}}\n" for i in range(10_000))
    path.write_text("faults:\n" + "".join(lines))
    message = measured(lambda: parse_faults(str(path), FatTree(4), 1))
    # The fabric has fewer links.
    assert "not valid YAML" not in message and "larger" not in message


def test_two_schedules_of_one_link_are_compared_in_their_order() -> None:
    ones = tuple((float(i), i + 0.4) for i in range(50_000))
    twos = tuple((i + 0.5, i + 0.9) for i in range(50_000))
    one, two = Fault(3, 0.1, schedule=ones), Fault(3, 0.1, schedule=twos)
    assert not one.overlaps(two) and not two.overlaps(one)
    late = Fault(3, 0.1, schedule=(*twos[:-1], (49_999.3, 49_999.9)))
    assert one.overlaps(late) and late.overlaps(one)


@pytest.mark.parametrize("bomb", ["aliases", "deep"])
def test_the_truth_of_a_strangers_run(run_path: Path, tmp_path: Path, bomb: str) -> None:
    run = Path(shutil.copytree(run_path, tmp_path / "run"))
    text = YAML[bomb].replace("a10:", "failed_devices:") + "# match:\n"
    (run / "truth.yaml").write_text(text.replace("faults:", "failed_devices:"))
    record = RunDirectory(run, trust=True)
    for read in (failed_devices, links_with_matches):
        assert "truth.yaml is damaged" in measured(lambda read=read: read(record))


# ---- JSON ----------------------------------------------------------------------------------------

JSON = {
    "deep": "[" * 1_000_000,
    "deep objects": '{"a":' * 1_000_000,
    "wrong values": '{"record_version": 1, "unread": [' + "1," * 3_000_000 + "1]}",
    "wrong names": "{" + ",".join(f'"a{i}":1' for i in range(1_000_000)) + "}",
    "long": '{"a": "' + "x" * (40 << 20) + '"}',
}


@pytest.mark.parametrize("bomb", JSON)
def test_json(run_path: Path, tmp_path: Path, bomb: str) -> None:
    for name in ("config.json", "network.json", "summary.json", "manifest.json"):
        run = Path(shutil.copytree(run_path, tmp_path / name))
        (run / name).write_text(JSON[bomb])
        message = measured(lambda run=run, name=name: make_page(run, name != "manifest.json"))
        assert name in message
    for name, read in (("comparison.json", read_comparison), ("sweep.json", read_sweep)):
        folder = Path(shutil.copytree(tmp_path / "config.json", tmp_path / f"of {name}"))
        (folder / name).write_text(JSON[bomb])
        assert measured(lambda folder=folder, read=read: read(folder)) != "read"


@pytest.mark.parametrize("bomb", JSON)
def test_a_bmv2_json(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "program.json"
    path.write_text(JSON[bomb])
    assert "program.json" in measured(lambda: Program.load(path))


P4INFO = {
    "tuples": "type_info { serializable_enums { " + "tuple { members { " * 400,
    "deep": "a { " * 1_000_000,
    "tables": "tables { preamble { id: 1 } }\n" * 200_000,
    "tuples whole": "digests { preamble { id: 1 } type_spec { "
    + "tuple { members { " * 400
    + "bitstring { bit { bitwidth: 8 } } "
    + "} } " * 400
    + "} }",
    "long": 'tables { preamble { name: "' + "x" * (5 << 20) + '" } }',
}


@pytest.mark.parametrize("bomb", P4INFO)
def test_a_p4info(tmp_path: Path, bomb: str) -> None:
    """400 nested tuples ended the soft switch in a RecursionError."""
    shutil.copy(PROGRAM, tmp_path / "program.json")
    (tmp_path / "program.p4info.txt").write_text(P4INFO[bomb])
    message = measured(lambda: read_config(str(tmp_path / "program.json"), 511)())
    assert message.count("/program.p4info.txt") == 1, message


@pytest.mark.parametrize("name", ["../../../x", "/etc/passwd", "..", "a\nb"])
def test_a_method_that_is_a_path(run_path: Path, tmp_path: Path, name: str) -> None:
    """The page of such a run ended in a KeyError."""
    run = Path(shutil.copytree(run_path, tmp_path / "run"))
    summary = json.loads((run / "summary.json").read_text())
    first = next(iter(summary["methods"].values()))
    summary["methods"][name] = first
    (run / "summary.json").write_text(json.dumps(summary))
    message = measured(lambda: make_page(run, trust=True))
    assert "summary.json: methods:" in message and "is no name of a method" in message


# ---- files of other tools ------------------------------------------------------------------------

IMPORTED: dict[str, Callable[[], str]] = {
    "deep": lambda: "[" * 1_000_000,
    "deep objects": lambda: '{"a":' * 1_000_000,
    "aliases": lambda: re.sub("([&*])a", r"\1", layers("[x]", lambda inner: f"[{inner}]")),
    "empty lines": lambda: "\n" * (1 << 19),
    "dashes": lambda: "-" * (1 << 20),
    "names": lambda: "a-b " * (1 << 18),
    "brackets": lambda: "[" * (1 << 20),
    "elements": lambda: "<node>" * 1_000_000,
    "entities": lambda: (
        '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb">'
        + "".join(f'<!ENTITY b{i} "{"&b;" * 100}">' for i in range(20))
        + "]><node id='0'>&b19;</node>"
    ),
    "hosts": lambda: (
        "Nodes 1000000000\nTiers 2\nPodsize 1000000000\nTier 0\nRadix_Down 1\nRadix_Up 1\n"
        "Tier 1\nRadix_Down 1000000000\n"
    ),
    "labels": lambda: "a{" + "b" * (1 << 20) + "} 1\n",
    "interfaces": lambda: json.dumps(
        {"path": "interface[name=" * 100_000, "prefix": "a", "delta": 1}
    ),
    "both directions": lambda: json.dumps(
        {
            "directed": True,
            "nodes": [],
            "links": [{"source": f"b{i}", "target": f"a{i}"} for i in range(10_000)],
        }
    ),
}
LARGE: dict[str, Callable[[], str]] = {
    "many values": lambda: "[" + "[]," * 20_000_000 + "[]]",
    "many objects": lambda: "[" + '{"a":1},' * 8_000_000 + "{}]",
    "a long line": lambda: "x" * (200 << 20),
    "columns": lambda: "a," * 1_000_000 + "\n" + "1\n" * 1000,
    "zipped": lambda: "\n" * (200 << 20),
}


def import_as(name: str, path: Path) -> str:
    """What the reader of a format says of a file."""
    topology = None
    if IMPORTERS[name].makes != "fabric":
        topology = path.with_name("fabric.csv")
        write_fabric(topology, FatTree(4))
    return measured(lambda: import_to(name, [path], path.with_name("out"), topology))


@pytest.mark.parametrize("bomb", IMPORTED)
def test_files_of_other_tools(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "bomb.txt"
    path.write_text(IMPORTED[bomb]())
    for name in IMPORTERS:
        import_as(name, path)


@pytest.mark.parametrize("bomb", LARGE)
@pytest.mark.parametrize("name", ["nodelink", "dot", "edgelist", "007", "nfdump", "prometheus"])
def test_large_files_of_other_tools(tmp_path: Path, bomb: str, name: str) -> None:
    path = tmp_path / "bomb.txt"
    content = LARGE[bomb]().encode()
    path.write_bytes(gzip.compress(content, 1) if bomb == "zipped" else content)
    del content
    assert import_as(name, path) != "read"


# ---- pipes ---------------------------------------------------------------------------------------


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    """``METHODS=`` with a pipe hung."""
    for suffix, read in (
        (".py", lambda path: find_methods(str(path))),
        (".py", lambda path: make_request(str(path), {}, None)),
        (".parquet", read_fabric),
        (".parquet", read_arrow),
        (".csv", read_fabric),
        *((".yaml", read) for read in YAML_READERS.values()),
    ):
        path = tmp_path / f"pipe{suffix}"
        if not path.exists():
            os.mkfifo(path)
        assert measured(lambda path=path, read=read: read(path)) != "read"
