# SPDX-License-Identifier: Apache-2.0
"""The Tofino profiles: their report against the sources, and their face against v1model's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import google.protobuf.text_format
import pytest
import yaml
from p4.config.v1 import p4info_pb2 as _p4info_pb2

from tests.patience import PATIENCE_S

from .conftest import P4

p4info_pb2: Any = _p4info_pb2
TOFINO = P4 / "tofino"


def load_report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tofino_report", TOFINO / "report.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tofino = load_report()


def compiler() -> Any:
    try:
        return tofino.find_compiler()
    except ValueError:
        return None


def table(title: str) -> dict[str, dict[str, str]]:
    """A table of the committed report: row to column to cell."""
    section = tofino.REPORT.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


PROFILES = table("Profiles, and the paper's table IV")


def number(cell: str) -> int:
    return int(cell.split()[0])


def stages(profile: str) -> list[int]:
    cells = [PROFILES[f"stages, {gress}"][profile] for gress in ("ingress", "egress")]
    return [0 if cell == "-" else int(cell) for cell in cells]


# ---- the report ----------------------------------------------------------------------------------


def test_report_was_made_from_these_sources() -> None:
    assert f"- Sources: sha256 {tofino.sources_sha256()}\n" in tofino.REPORT.read_text(), (
        "p4/tofino/REPORT.md is older than the sources: run make -C p4 tofino-report"
    )


def test_changing_any_source_changes_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(P4, tmp_path / "p4", ignore=shutil.ignore_patterns("build"))
    monkeypatch.setattr(tofino, "HERE", tmp_path / "p4" / "tofino")
    before = tofino.sources_sha256()
    for path in tofino.sources():
        path.write_bytes(path.read_bytes() + b"\n")
        assert tofino.sources_sha256() != before
        path.write_bytes(path.read_bytes()[:-1])
    assert tofino.sources_sha256() == before


@pytest.mark.parametrize("profile", ["transit", "monitor"])
def test_profiles_fit_twelve_stages(profile: str) -> None:
    assert 0 < max(stages(profile)) <= tofino.STAGES


def test_parts_add_up_to_the_monitor_profile() -> None:
    rows = table("What each part costs")
    for resource in tofino.PAPER:
        steps = [int(row[resource]) for name, row in rows.items() if name != "monitor"]
        assert sum(steps) == int(rows["monitor"][resource]) == number(PROFILES[resource]["monitor"])
        assert steps[0] == number(PROFILES[resource]["transit"])


def test_gresses_make_up_the_profile() -> None:
    rows = table("By gress")
    for profile in tofino.PROFILES:
        for resource in tofino.PAPER:
            each = [int(rows[f"{profile}, {gress}"][resource]) for gress in tofino.GRESSES]
            assert max(each) <= number(PROFILES[resource][profile]) <= sum(each)


@pytest.mark.skipif(compiler() is None, reason="no compiler for Tofino is on the PATH")
@pytest.mark.parametrize("profile", ["transit", "monitor"])
def test_compiling_again_gives_the_committed_figures(profile: str, tmp_path: Path) -> None:
    p4info = tmp_path / "p4info.txtpb"
    tofino.build(compiler(), tofino.PROFILES[profile], tmp_path / profile, p4info)
    used = tofino.usage(tmp_path / profile)
    assert max(used.stages.values()) <= tofino.STAGES
    [assembly] = (tmp_path / profile / "pipe").glob("*.bfa")
    check_hashes(assembly.read_text())
    if f"Compiler: {compiler().version}\n" not in tofino.REPORT.read_text():
        pytest.skip(f"the report is of another compiler than {compiler().version}")
    assert {resource: number(PROFILES[resource][profile]) for resource in used.total} == used.total
    assert stages(profile) == list(used.stages.values())
    assert p4info.read_text() == (TOFINO / f"{profile}.p4info.txtpb").read_text()


# Where a flow ID's fields lie in the 104 bits that v1model hashes, from the right.
FLOW_ID = {"protocol": 0, "dst_port": 8, "src_port": 24, "dst_ip": 40, "src_ip": 72}
# Polynomials as the assembler writes them (without the last bit), initial value, final xor.
CRC16, CRC32 = (0xC002, 0, 0), (0x82608EDB, 0xFFFFFFFF, 0xFFFFFFFF)


def compiled_hashes(assembly: str) -> list[tuple[tuple[int, int, int], int, str, int, int]]:
    """Each field of each CRC: (polynomial, init, xor), bits of the message, field, its place and
    its lowest bit: ``8: meta.ports.0-23(16..23)`` is from bit 16 on."""
    fields = []
    crc = r"crc_rev\((\w+), (\w+), (\w+), (\d+), \{ ([^}]*) \}"
    part = r"(\d+): ([a-zA-Z_][\w.]*?)(?:\.(\d+)-\d+)?(?:\((\d+)(?:\.\.\d+)?\))?(?:,| |$)"
    for polynomial, init, xor, bits, message in re.findall(crc, assembly):
        kind = (int(polynomial, 16), int(init, 16), int(xor, 16))
        found = re.findall(part, message)
        assert len(found) == message.count(":"), message
        for at, field, piece, low in found:
            fields.append((kind, int(bits), field, int(at), int(piece or 0) + int(low or 0)))
    return fields


def check_hashes(assembly: str) -> None:
    """The chip's matrices are made for the CRCs that v1model computes, of the same messages."""
    found = compiled_hashes(assembly)
    assert {kind for kind, *_ in found} == {CRC16, CRC32}
    for kind, bits, field, at, low in found:
        name = field.rsplit(".")[-1]
        assert bits == 104
        if name == "ports":  # source and destination port, as one
            assert (kind, at - low) == (CRC16, FLOW_ID["dst_port"])
        else:
            assert at - low == FLOW_ID[name]
    for kind, ports in ((CRC32, {"src_port", "dst_port"}), (CRC16, {"ports"})):
        names = {field.rsplit(".")[-1] for of, _, field, *_ in found if of == kind}
        assert names == {"protocol", "src_ip", "dst_ip"} | ports


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")
@pytest.mark.parametrize("target", ["tofino", "tofino-report"])
def test_without_a_compiler_make_says_in_one_line_what_to_do(target: str, tmp_path: Path) -> None:
    shutil.copytree(P4, tmp_path / "p4")
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("make", "sh"):
        (tools / tool).symlink_to(shutil.which(tool) or "")
    done = subprocess.run(
        ["make", "-C", str(tmp_path / "p4"), target, f"PYTHON={sys.executable}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PATH": str(tools)},
    )
    assert done.returncode == 2
    errors = [line for line in done.stdout.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert "no compiler for Tofino" in errors[0]
    assert (tmp_path / "p4/tofino/REPORT.md").read_text() == tofino.REPORT.read_text()


# ---- one controller for both ---------------------------------------------------------------------


def read_p4info(path: Path) -> Any:
    return google.protobuf.text_format.Parse(path.read_text(), p4info_pb2.P4Info())


V1MODEL = read_p4info(P4 / "build" / "canary.p4info.txtpb")
DIFFERENCES = yaml.safe_load((TOFINO / "differences.yaml").read_text())


def part_of(name: str, parts: list[str]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def tables_of(info: Any) -> dict[str, Any]:
    """Table to its key (name, bits, kind), actions with parameters (name, bits), and size."""
    actions = {
        a.preamble.id: (a.preamble.name, tuple((p.name, p.bitwidth) for p in a.params))
        for a in info.actions
    }
    return {
        t.preamble.name: (
            [(f.name, f.bitwidth, f.match_type) for f in t.match_fields],
            {actions[ref.id] for ref in t.action_refs if "NoAction" not in actions[ref.id][0]},
            t.size,
            len([1 for c in info.direct_counters if c.direct_table_id == t.preamble.id]),
        )
        for t in info.tables
    }


def expected(profile: str) -> dict[str, Any]:
    """v1model's tables as the file of differences turns them into a profile's."""
    left_out = list(DIFFERENCES["only_v1model"])
    if profile == "transit":
        left_out += DIFFERENCES["only_monitor"]
    tables = {}
    for name, (key, *rest) in tables_of(V1MODEL).items():
        if part_of(name, left_out):
            continue
        narrower = DIFFERENCES["widths"].get(name, {})
        split = DIFFERENCES["keys"].get(name, {})
        fields = []
        for field, bits, kind in key:
            if field in split:
                fields += [(part, FIELD_BITS[part], kind) for part in split[field]]
                assert sum(FIELD_BITS[part] for part in split[field]) == bits
            else:
                fields.append((field, narrower.get(field, bits), kind))
        tables[name] = (fields, *rest)
    return tables


FIELD_BITS = {
    "hdr.ipv4.src_ip": 32,
    "hdr.ipv4.dst_ip": 32,
    "hdr.l4.src_port": 16,
    "hdr.l4.dst_port": 16,
    "hdr.ipv4.protocol": 8,
}


@pytest.mark.parametrize("profile", ["transit", "monitor"])
def test_tables_are_those_of_v1model_but_for_the_listed_differences(profile: str) -> None:
    info = read_p4info(TOFINO / f"{profile}.p4info.txtpb")
    assert tables_of(info) == expected(profile)


def registers_of(info: Any) -> dict[str, tuple[int, dict[str, int]]]:
    """Register array to its size and the bits of its fields ('' when it has but one)."""
    structs = info.type_info.structs
    out = {}
    for register in info.registers:
        spec = register.type_spec
        if spec.HasField("struct"):
            members = structs[spec.struct.name].members
            bits = {m.name: m.type_spec.bitstring.bit.bitwidth for m in members}
        else:
            bits = {"": spec.bitstring.bit.bitwidth}
        out[register.preamble.name] = (register.size, bits)
    return out


def expand(pattern: str) -> list[str]:
    """``row{0,1}`` to row0 and row1."""
    if "{" not in pattern:
        return [pattern]
    before, rest = pattern.split("{")
    numbers, after = rest.split("}")
    return [before + n + after for n in numbers.split(",")]


def test_every_register_of_both_is_explained() -> None:
    ours = registers_of(read_p4info(TOFINO / "monitor.p4info.txtpb"))
    theirs = registers_of(V1MODEL)
    for pattern, sides in DIFFERENCES["registers"].items():
        for owner in expand(pattern):
            widths: dict[str, dict[str, tuple[int, set[int]]]] = {}
            for side, arrays in (("v1model", theirs), ("tofino", ours)):
                for value, parts in sides[side].items():
                    bits, sizes = 0, set()
                    for part in parts:
                        array, _, field = part.partition(".")
                        size, fields = arrays[f"{owner}.{array}"]
                        bits += fields.pop(field)
                        sizes.add(size)
                    widths.setdefault(value, {})[side] = (bits, sizes)
            for value, both in widths.items():
                if value in ("dirty", "flow", "window_and_messages", "count_again"):
                    continue  # one bit in a byte, a CRC32 of an ID, a wider clock, a copy
                assert both["v1model"] == both["tofino"], (owner, value)
    assert not {name for name, (_, left) in {**ours, **theirs}.items() if left}, "not explained"


def test_the_digest_has_v1models_layout() -> None:
    [theirs] = V1MODEL.digests
    info = read_p4info(TOFINO / "monitor.p4info.txtpb")
    [ours] = info.digests
    assert DIFFERENCES["digests"] == {theirs.preamble.name: ours.preamble.name}

    def layout(info: Any, digest: Any) -> list[tuple[str, int]]:
        members = info.type_info.structs[digest.type_spec.struct.name].members
        return [(m.name, m.type_spec.bitstring.bit.bitwidth) for m in members]

    assert layout(info, ours) == layout(V1MODEL, theirs)
    assert not read_p4info(TOFINO / "transit.p4info.txtpb").digests
