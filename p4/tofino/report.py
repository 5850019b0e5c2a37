# SPDX-License-Identifier: Apache-2.0
"""Compiles the Tofino profiles, and reports what they take of the chip beside the paper's table IV.

    python3 p4/tofino/report.py            compile both profiles into p4/tofino/build/
    python3 p4/tofino/report.py --write    compile every step from transit to monitor too, print the
                                           table, and write it to p4/tofino/REPORT.md

The compiler is `bf-p4c` of an SDE or a `p4c` built with the open Tofino backend. This file needs
nothing but Python's own library.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPORT = HERE / "REPORT.md"
STAGES = 12
GRESSES = ("ingress", "egress")

# From the transit profile, which has none of these parts, to the monitor profile, which has all.
PARTS = ("DSM", "USM", "HASHPIPE", "HEAVY_HITTER")
PART_NAMES = {
    "DSM": "downstream meter",
    "USM": "upstream meter",
    "HASHPIPE": "HashPipe",
    "HEAVY_HITTER": "heavy-hitter table and digest",
}
PROFILES: dict[str, tuple[str, ...]] = {"transit": (), "monitor": PARTS}

# The paper's table IV, as printed but for the logical tables, where its 11.44 % of the chip's 192
# are 22 and not the 20 it prints. What the chip has is in the compiler's file.
PAPER = {
    "crossbar bytes": 130,
    "gateways": 18,
    "hash bits": 274,
    "stateful ALUs": 8,
    "SRAM": 29,
    "TCAM": 4,
    "logical tables": 22,
}


@dataclass(frozen=True)
class Compiler:
    """A compiler for Tofino: how to call it, and what it calls itself."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Usage:
    """What a program takes, by resource: in all, of each gress, and what the chip has."""

    total: dict[str, int]
    gress: dict[str, dict[str, int]]
    chip: dict[str, int]
    stages: dict[str, int]


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def find_compiler() -> Compiler:
    """The compiler on the PATH, an SDE's first.

    Raises:
        ValueError: There is none. The message says in one line what to install.
    """
    target = ("--target", "tofino", "--arch", "tna", "--std", "p4-16")
    if shutil.which("bf-p4c"):
        return Compiler(("bf-p4c", *target), _output("bf-p4c", "--version").strip())
    if shutil.which("p4c") and "tofino-tna" in _output("p4c", "--target-help"):
        version = _output("p4c", "--version").strip()
        return Compiler(("p4c", *target), re.sub(r" BUILD: \w+", "", version))
    raise ValueError(
        "there is no compiler for Tofino on the PATH: build p4c (https://github.com/p4lang/p4c) "
        "with "
        "-DENABLE_TOFINO=ON, or take bf-p4c from an SDE"
    )


def sources() -> list[Path]:
    """Return the files that a profile is compiled from, sorted by path."""
    shared = [HERE.parent / "include" / name for name in ("headers.p4", "sizes.p4")]
    return sorted([*HERE.glob("*.p4"), *HERE.glob("include/*.p4"), *shared])


def sources_sha256() -> str:
    """Return one SHA-256 of all sources and their names, in hex."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(HERE.parent).as_posix()}\0".encode())
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def build(compiler: Compiler, parts: Sequence[str], to: Path, p4info: Path | None = None) -> None:
    """Compile the program with these parts into a directory.

    Raises:
        ValueError: It does not compile. The message is the compiler's.
    """
    to.mkdir(parents=True, exist_ok=True)
    options = [*(f"-D{part}" for part in parts), "-g", "-o", str(to)]
    if p4info is not None:
        options += ["--p4runtime-files", str(p4info), "--p4runtime-force-std-externs"]
    done = subprocess.run(
        [*compiler.command, *options, str(HERE / "canary.p4")], capture_output=True, text=True
    )
    if done.returncode or not (to / "pipe" / "tofino.bin").is_file():
        said = (done.stdout + done.stderr).splitlines()
        errors = [line for line in said if re.search(r"\berror:|Error: ", line)]
        raise ValueError("\n".join(errors) or f"the compiler ended with {done.returncode}")


# ---- the compiler's resources.json ---------------------------------------------------------------


def _used_by(unit: dict[str, Any]) -> Iterable[str]:
    """Yield the names of the tables that use a unit."""
    for key in ("used_by", "used_by_table", "table_name"):
        if key in unit:
            yield unit[key]
    for use in unit.get("usages", ()):
        if "used_by" in use:
            yield use["used_by"]


# Resource to its (section, list of units) and what a stage of the chip has of each.
_SECTIONS: dict[str, list[tuple[str, str, Callable[[dict[str, Any]], int]]]] = {
    "crossbar bytes": [
        ("xbar_bytes", "bytes", lambda s: s["exact_size"] + s["ternary_size"]),
    ],
    "gateways": [("gateways", "gateways", lambda s: s["nRows"] * s["nUnits"])],
    "hash bits": [("hash_bits", "bits", lambda s: s["nBits"] * s["nFunctions"])],
    "stateful ALUs": [
        ("meter_alus", "meters", lambda s: s["nAlus"]),
        ("statistic_alus", "stats", lambda s: s["nAlus"]),
    ],
    "SRAM": [("rams", "srams", lambda s: s["nRows"] * s["nColumns"])],
    "TCAM": [("tcams", "tcams", lambda s: s["nRows"] * s["nColumns"])],
    "logical tables": [("logical_tables", "ids", lambda s: s["size"])],
}


def usage(to: Path) -> Usage:
    """Read what a build takes.

    Raises:
        ValueError: The compiler's files name a table whose gress they do not say.
    """
    resources = json.loads((to / "pipe" / "logs" / "resources.json").read_text())
    gress_of = _gresses(to)
    total = dict.fromkeys(_SECTIONS, 0)
    chip = dict.fromkeys(_SECTIONS, 0)
    gress = {name: dict.fromkeys(_SECTIONS, 0) for name in GRESSES}
    stages: dict[str, int] = dict.fromkeys(GRESSES, 0)
    used_stages = resources["resources"]["mau"]["mau_stages"]
    for stage in used_stages:
        for resource, sections in _SECTIONS.items():
            for section, units, capacity in sections:
                if stage is used_stages[0]:
                    chip[resource] += STAGES * capacity(stage[section])
                for unit in stage[section][units]:
                    total[resource] += 1
                    for name in {_gress(table, gress_of) for table in _used_by(unit)}:
                        gress[name][resource] += 1
                        if resource == "logical tables":
                            stages[name] = max(stages[name], stage["stage_number"] + 1)
    return Usage(total, gress, chip, stages)


def _gresses(to: Path) -> dict[str, str]:
    """Return the gress, ingress or egress, of every name in the stages of the assembly."""
    [assembly] = (to / "pipe").glob("*.bfa")
    gress_of: dict[str, str] = {}
    for section in re.split(r"^(?=\w)", assembly.read_text(), flags=re.MULTILINE):
        head = re.match(r"stage \d+ (ingress|egress):", section)
        if head:
            gress_of.update(dict.fromkeys(re.findall(r"[\w-]+", section), head[1]))
    return gress_of


def _gress(table: str, gress_of: dict[str, str]) -> str:
    for prefix, gress in (("CanaryIngress.", "ingress"), ("CanaryEgress.", "egress")):
        if table.startswith(prefix):
            return gress
    name = re.split(r"[$]|-gateway", table)[0]
    if name in gress_of:
        return gress_of[name]
    raise ValueError(f"the compiler does not say whether {table!r} is in ingress or egress")


# ---- the table -----------------------------------------------------------------------------------


def _rows(label: str, cells: Sequence[object]) -> str:
    return f"| {label} | " + " | ".join(str(cell) for cell in cells) + " |"


def _head(first: str, columns: Sequence[str]) -> list[str]:
    return [_rows(first, columns), "| --- |" + " ---: |" * len(columns)]


def _share(used: int, has: int) -> str:
    return f"{used} ({100 * used / has:.1f} %)"


def report(compiler: Compiler, steps: Sequence[tuple[tuple[str, ...], Usage]]) -> str:
    """Return the Markdown report of builds from transit to monitor.

    ``steps`` are the parts of each build and what it takes of the chip.
    """
    by_parts = dict(steps)
    chip = steps[0][1].chip
    profiles = {name: by_parts[parts] for name, parts in PROFILES.items()}
    lines = [
        "# What the Tofino profiles take",
        "",
        "Written by `make -C p4 tofino-report`; a test compares it with the sources.",
        "",
        f"- Compiler: {compiler.version}",
        f"- Sources: sha256 {sources_sha256()}",
        f"- Chip: Tofino 1, {STAGES} stages. Nothing here ran on a chip or a model of one.",
        "",
        "## Profiles, and the paper's table IV",
        "",
        *_head("", [*profiles, "paper", "chip"]),
    ]
    for resource in _SECTIONS:
        cells = [_share(profile.total[resource], chip[resource]) for profile in profiles.values()]
        lines.append(
            _rows(resource, [*cells, _share(PAPER[resource], chip[resource]), chip[resource]])
        )
    for gress in GRESSES:
        cells = [profile.stages[gress] or "-" for profile in profiles.values()]
        lines.append(_rows(f"stages, {gress}", [*cells, "", STAGES]))
    lines += [
        "",
        "The paper's row is of its authors' public program, with indexed counters where its",
        "text has meters, four entries in a HashPipe stage, and neither ECMP nor parity. It prints",
        "20 logical tables and 11.44 %, which is 22. Stateful ALUs: of registers and counters.",
        "",
        "## What each part costs",
        "",
        *_head("", [*_SECTIONS, *(f"stages, {gress}" for gress in GRESSES)]),
    ]
    before: Usage | None = None
    stages: list[int | str] = []
    for parts, used in steps:
        stages = [used.stages[gress] or "-" for gress in GRESSES]
        if before is None:
            lines.append(_rows("transit", [*used.total.values(), *stages]))
        else:
            added = [f"{used.total[r] - before.total[r]:+d}" for r in _SECTIONS]
            lines.append(_rows(PART_NAMES[parts[-1]], [*added, *stages]))
        before = used
    assert before is not None
    lines.append(_rows("monitor", [*before.total.values(), *stages]))
    lines += ["", "## By gress", "", *_head("", list(_SECTIONS))]
    for name, profile in profiles.items():
        for gress in GRESSES:
            lines.append(_rows(f"{name}, {gress}", list(profile.gress[gress].values())))
    lines += [
        "",
        "A unit that both gresses use counts once in a profile and once in each gress.",
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Build the profiles, or with ``--write`` each step and the report; return the exit status.

    It is a number: 0, or 2 for wrong arguments, a missing compiler or a build that fails.
    """
    if any(argument != "--write" for argument in arguments):
        print("usage: report.py [--write]")
        return 2
    try:
        compiler = find_compiler()
        print(f"compiling with {compiler.command[0]}: {compiler.version}")
        if not arguments:
            for name, parts in PROFILES.items():
                build(compiler, parts, HERE / "build" / name)
                print(f"p4/tofino/build/{name}")
            return 0
        steps = []
        for n in range(len(PARTS) + 1):
            parts = PARTS[:n]
            profile = next((name for name, of in PROFILES.items() if of == parts), None)
            to = HERE / "build" / (profile or "-".join(parts).lower())
            p4info = HERE / f"{profile}.p4info.txtpb" if profile else None
            build(compiler, parts, to, p4info)
            steps.append((parts, usage(to)))
        text = report(compiler, steps)
        REPORT.write_text(text)
        print(text)
    except ValueError as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
