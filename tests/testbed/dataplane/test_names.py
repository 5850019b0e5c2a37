# SPDX-License-Identifier: Apache-2.0
"""The names that Python has of the P4 program: they exist, and a changed program is noticed."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import testbed.dataplane as dataplane
from canary_softswitch.compiler.build import compiler
from testbed.dataplane import (
    BUCKETS,
    CAUSES,
    DSM,
    EXPIRY,
    FAULT,
    FLOW_ID,
    HASHPIPE,
    HEAVY_HITTER,
    IDENTITY,
    INGRESS_FAULT,
    P4INFO,
    PROGRAM,
    ROUTING,
    ROWS,
    SHIM_BITS,
    USM,
    VERDICT,
    c_defines,
    source_digests,
)

ROOT = Path(dataplane.__file__).parents[2]


def names_of(block: object) -> set[str]:
    """The P4 names that an instance holds, those of its registers too."""
    values = list(vars(block).values())
    lists = [one for value in values if isinstance(value, list) for one in value]
    flat = [*values, *(name for one in lists for name in one.values())]
    return {name for name in flat if isinstance(name, str) and "." in name}


@pytest.mark.parametrize(
    "block", [IDENTITY, DSM, USM, HASHPIPE, HEAVY_HITTER, EXPIRY, ROUTING, FAULT, INGRESS_FAULT]
)
def test_p4info_and_json_have_every_name(block: object) -> None:
    names = names_of(block)
    assert names
    for text in (P4INFO.read_text(), PROGRAM.read_text()):
        assert all(f'"{name}"' in text for name in names)


def test_sizes_are_the_papers() -> None:
    """d = 3 rows of w = 1024 buckets of 137 and 169 bits, a HashPipe of 3 x 32 (Canary, IV-A)."""
    assert (ROWS, BUCKETS) == (3, 1024)
    assert (USM.bucket_bits, DSM.bucket_bits) == (137, 169)
    assert (len(HASHPIPE.stages), HASHPIPE.entries) == (3, 32)
    assert (DSM.capacity, USM.capacity, HEAVY_HITTER.capacity) == (4096, 4096, 1024)


def test_words_of_fields() -> None:
    word = CAUSES["ttl"] << 8 | 0b1000_0010
    assert VERDICT.cause.of(word) == CAUSES["ttl"]
    assert [b.of(word) for b in (VERDICT.expired, VERDICT.counted, VERDICT.parity)] == [1, 1, 0]
    assert FLOW_ID.of(1, 2, 3, 4, 5) == 1 << 72 | 2 << 40 | 3 << 24 | 4 << 8 | 5
    assert SHIM_BITS == 8 * 7


def test_digest_is_in_the_order_of_its_struct() -> None:
    digest = HEAVY_HITTER.digest
    assert sum(digest.fields.values()) == 104 + 32
    assert [digest.position(field) for field in digest.fields] == list(range(6))


def test_sources_are_named_with_their_digests() -> None:
    digests = source_digests()
    assert "canary.p4" in digests and all(len(digest) == 64 for digest in digests.values())


def test_c_reads_a_verdict_as_python_does(tmp_path: Path) -> None:
    fields = sorted(VERDICT.fields)
    words = [0, 0x0382, 0xFFFF, CAUSES["local"] << 8 | 0x81]
    prints = "".join(
        f'printf("%u\\n", (unsigned)VERDICT_{name.upper()}(UINT64_C({word})));\n'
        for word in words
        for name in fields
    )
    code = f"#include <stdint.h>\n#include <stdio.h>\n{c_defines()}int main(void) {{\n{prints}}}\n"
    (tmp_path / "verdict.c").write_text(code)
    program = tmp_path / "verdict"
    subprocess.run([*compiler(), "-o", program, tmp_path / "verdict.c"], check=True)
    messages = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert [int(n) for n in messages] == [
        VERDICT.fields[name].of(word) for word in words for name in fields
    ]


def test_nobody_else_names_the_program() -> None:
    """What is written here once is not written anywhere else in the testbed."""
    rooms = ("analysis", "scenarios", "testbed")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    wrong = [
        str(file.relative_to(ROOT))
        for file in files
        if file.parent.name != "dataplane"
        and ROOT / "testbed" / "softswitch" / "tests" not in file.parents
        and re.search(r"gress|hitter|verdict", text := file.read_text())  # parsing takes long
        and re.search(r"Canary(In|E)gress|heavy_hitter_t|meta\.verdict", strings(text))
    ]
    assert wrong == []


def strings(module: str) -> str:
    """The strings of a module, those of several lines left out: they are docstrings."""
    return "\n".join(
        repr(node.value)
        for node in ast.walk(ast.parse(module))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value
    )


# ---- a changed program ---------------------------------------------------------------------------


def renamed(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


CHANGES = {
    "table": (
        "build/canary.json",
        renamed('"CanaryIngress.dsm.rules"', '"CanaryIngress.dsm.flows"'),
        "there is no table CanaryIngress.dsm.rules",
    ),
    "action": (
        "build/canary.json",
        renamed('"CanaryIngress.routing.deliver"', '"CanaryIngress.routing.hand_over"'),
        "there is no action CanaryIngress.routing.deliver",
    ),
    "parameter": (
        "build/canary.json",
        renamed('"name" : "threshold"', '"name" : "rate"'),
        "action CanaryEgress.fault.lossy takes rate, not threshold",
    ),
    "key": (
        "build/canary.json",
        renamed('"name" : "meta.hashpipe_count"', '"name" : "meta.packets"'),
        "the key of table CanaryIngress.heavy_hitter.segments is hdr.shim.path_bf, meta.packets, "
        "not hdr.shim.path_bf, meta.hashpipe_count",
    ),
    "register": (
        "build/canary.json",
        renamed('"CanaryEgress.usm.row1.dirty"', '"CanaryEgress.usm.row1.mixed"'),
        "there is no register CanaryEgress.usm.row1.dirty",
    ),
    "counter": (
        "build/canary.json",
        renamed('"CanaryEgress.fault.dropped"', '"CanaryEgress.fault.lost"'),
        "there is no counter CanaryEgress.fault.dropped",
    ),
    "buckets": (
        "include/sizes.p4",
        renamed("#define ROW_BUCKETS 1024", "#define ROW_BUCKETS 2048"),
        "has 2048 elements, not 4096",
    ),
    "digest": (
        "build/canary.p4info.txtpb",
        renamed('name: "src_port"\n        type', 'name: "sport"\n        type'),
        "digest heavy_hitter_t is of src_ip, dst_ip, sport,",
    ),
    "verdict": (
        "include/metadata.p4",
        renamed("5w0 ++ hdr.shim.counted", "hdr.shim.counted ++ 5w0"),
        "",
    ),
    "verdict's width": (
        "include/metadata.p4",
        renamed("++ 5w0 ++", "++ 4w0 ++"),
        "include/metadata.p4: the 16 bits of meta.verdict are not cause, expired, counted, parity",
    ),
    "flow ID": (
        "include/flow.p4",
        renamed("hdr.ipv4.src_ip ++ hdr.ipv4.dst_ip", "hdr.ipv4.dst_ip ++ hdr.ipv4.src_ip"),
        "include/flow.p4: the 104 bits of meta.flow_id are not src_ip, dst_ip,",
    ),
    "cause": (
        "include/metadata.p4",
        renamed("CAUSE_TTL", "CAUSE_HOPS"),
        "metadata.p4 has no cause ttl",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_program_is_a_failing_import(what: str, tmp_path: Path) -> None:
    file, change, complaint = CHANGES[what]
    shutil.copytree(
        ROOT / "testbed" / "dataplane", tmp_path / "testbed" / "dataplane", symlinks=True
    )
    (tmp_path / "testbed" / "__init__.py").touch()
    shutil.copytree(ROOT / "p4", tmp_path / "p4", ignore=shutil.ignore_patterns("tofino*"))
    changed = tmp_path / "p4" / file
    changed.write_text(change(changed.read_text()))
    # a verdict whose bits lie elsewhere is the same to who asks by name
    code = "from testbed.dataplane import VERDICT; print(VERDICT.counted)"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    if not complaint:
        assert run.stdout == "Bits(shift=6, width=1)\n"
        return
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith("testbed.dataplane.program.DataPlaneError: ") and complaint in last
