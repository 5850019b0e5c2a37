# SPDX-License-Identifier: Apache-2.0
"""Captures, faults and scenario files of all kinds of wrong: used rightly, or refused in one line.

Every input comes of a seed and a number, so that what fails can be made again; more of them are
tried at night.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scenarios.experiment.request import load_scenario
from scenarios.experiment.settings import Settings, SettingsError
from testbed.fabric.fat_tree import FatTree
from testbed.faults.plan import FaultError, FaultPlan
from testbed.faults.specification import parse_faults
from testbed.network.speed import slowness
from testbed.traffic.capture import CaptureError
from testbed.traffic.replay import replay

K4 = FatTree(4)
SETTINGS = Settings()
LONGEST_S = 10.0
TODAY, NIGHTLY = 100, 3000

Rng = np.random.Generator
Try = Callable[[Path, Rng], None]

# ---- captures --------------------------------------------------------------------------------

IP4 = struct.pack(">BBHHHBBHII", 0x45, 0, 60, 1, 0, 64, 6, 0, 0xC0000201, 0xC6336401)
TCP = struct.pack(">HHIIBBHHH", 1234, 80, 1, 0, 0x50, 0, 0, 0, 0) + bytes(20)
LINKS = {0: b"\2\0\0\0", 1: bytes(12) + b"\x08\x00", 101: b"", 108: b"\0\0\0\2",
         113: bytes(14) + b"\x08\x00", 276: b"\x08\x00" + bytes(18)}  # fmt: skip
EXTREMES = (0, 1, 7, 0x7FFF, 0xFFFF, 0x40000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def frames(rng: Rng, link: int) -> list[bytes]:
    made = []
    for _ in range(rng.integers(1, 9)):
        ip = bytearray(IP4 + TCP)
        if rng.random() < 0.3:
            ip[rng.integers(0, 24)] = rng.integers(256)
        made.append(LINKS[link] + bytes(ip))
    return made


def pcap(rng: Rng) -> bytes:
    order, link = rng.choice(["<", ">"]), int(rng.choice(list(LINKS)))
    data = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for i, frame in enumerate(frames(rng, link)):
        data += struct.pack(f"{order}IIII", 1000, i * 100, len(frame), len(frame)) + frame
    return data


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


def pcapng(rng: Rng) -> bytes:
    link = int(rng.choice(list(LINKS)))
    data = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    option = struct.pack("<HHB3x", 9, 1, int(rng.choice([6, 9, 0, 127, 137, 255])))
    data += block(1, struct.pack("<HHI", link, 0, 0) + option + struct.pack("<HH", 0, 0))
    for i, frame in enumerate(frames(rng, link)):
        n = len(frame)
        which = rng.integers(5)
        if which == 0:
            data += block(3, struct.pack("<I", n) + frame)
        elif which == 1:
            data += block(int(rng.integers(4, 2**31)), frame)
        else:
            number = 0 if rng.random() < 0.8 else int(rng.choice(EXTREMES))
            data += block(6, struct.pack("<5I", number, 0, i * 100, n, n) + frame)
    return data * (2 if rng.random() < 0.2 else 1)


def damaged(data: bytes, rng: Rng) -> bytes:
    """Cut, flipped, with lying numbers, doubled or shortened somewhere; or whole."""
    content = bytearray(data)
    for _ in range(rng.integers(0, 4)):
        at = int(rng.integers(max(len(content), 1)))
        match rng.integers(6):
            case 0:
                del content[at:]
            case 1 | 2:
                content[at : at + 1] = rng.bytes(1)
            case 3:
                content[at : at + 4] = struct.pack("<I", int(rng.choice(EXTREMES)))
            case 4:
                content[at:at] = content[at : at + int(rng.integers(1, 90))]
            case 5:
                del content[at : at + int(rng.integers(1, 90))]
    return bytes(content)


def try_capture(folder: Path, rng: Rng) -> None:
    data = damaged((pcap, pcapng)[rng.integers(2)](rng), rng)
    if rng.random() < 0.3:
        data = damaged(gzip.compress(data, mtime=0), rng)
    path = folder / "a.pcap"
    path.write_bytes(data)
    fit = bool(rng.random() < 0.5)
    traffic, account = replay(path, K4, 1, duration_s=0.0005, fit=fit)
    assert account.frames == account.replayed + sum(account.refused.values())
    assert account.replayed == len(traffic.packets) == len(traffic.size)
    assert ((traffic.size >= 64) & (traffic.size <= 1514)).all()
    assert (np.diff(traffic.time_ns.astype(np.int64)) >= 0).all()
    assert not fit or account.refused.get("beyond the run's end") is None
    assert not len(traffic.time_ns) or int(traffic.time_ns[-1]) < 500_000
    assert (K4.host_tor[traffic.src_host] != K4.host_tor[traffic.dst_host]).all()


# ---- faults ----------------------------------------------------------------------------------

SCALARS = (
    *("true", "no", ".nan", ".inf", "-.inf", "-1", "0", "7.0", "1e400", "9" * 40, "0x10", "1:30"),
    *("null", "~", "''", "zap", "a->b", "tor0_0->agg0_0", "agg0_1", "core3", "2001-01-01", "[]"),
    *("{}", "[1]", "[[0.1, 0.2]]", "[[5, 6]]", "[[1, .nan]]", "{src_port: 80}", "*a", "&a [*a]"),
    *("!!python/name:os.system", "!!binary aGk=", "\u202e\x1b[31m", "|\n  x", "'", "%", "- -"),
    *("!!bool maybe", "!!float ''", "!!timestamp x", "2001-99-99", "1" + ":1" * 200 + ".5"),
)
DOCUMENT = """\
faults:
- link: tor0_0->agg0_1
  rate: 0.05
  kind: drop
  match: {dst_ip: 10.2.0.0/16, protocol: tcp}
  schedule: [[0.1, 0.3], [0.5, 0.6]]
- percent: 10
- device: agg1_0
  share: 50
- links: 2
  rate: 0.5
- devices: 1
failed_devices: [core0]
"""


def try_fault_file(folder: Path, rng: Rng) -> None:
    lines = DOCUMENT.splitlines()
    for _ in range(rng.integers(0, 4)):
        at = int(rng.integers(len(lines)))
        key, colon, _ = lines[at].partition(": ")
        scalar = str(rng.choice(SCALARS))
        match rng.integers(6):
            case 0 | 1:
                lines[at] = f"{key}{colon}{scalar}"
            case 2:
                lines.insert(at, lines[at])
            case 3:
                del lines[at:][: int(rng.integers(1, 3))]
            case 4:
                lines[at] = lines[at][: int(rng.integers(len(lines[at]) + 1))]
            case 5:
                lines[at] = f"  {scalar}: {scalar}"
    path = folder / "f.yaml"
    path.write_text("\n".join(lines))
    try:
        check_plan(parse_faults(str(path), K4, 1, duration_s=1.0))
    except FaultError as error:
        if "asks for" not in str(error) and "named twice" not in str(error):
            assert "f.yaml" in str(error) or "fat-tree" in str(error) or "pct" in str(error)
        raise


def check_plan(plan: FaultPlan) -> None:
    """What is accepted can happen."""
    plan.check(K4, 1.0)
    for fault in plan.faults:
        assert 0 <= fault.link < K4.n_links and 0 < fault.rate <= 1
        assert all(0 <= a < b < float("inf") and a < 1 for a, b in fault.schedule)


PIECES = (
    *("none", "10pct", "6links", "tor0_0->agg0_1", "devices:1", "device:agg0_1", ":", "->", "@"),
    *("50pct", "0.05", "nan", "-1", "7.0", "1e400", "9" * 5000, ",", " ", "\x1b[31m", "٣links"),
    *("links", "pct", "%", "\n", "[red]", "\u202e", "0x10", "inf"),
)


def try_fault_text(_: Path, rng: Rng) -> None:
    check_plan(parse_faults("".join(rng.choice(PIECES, rng.integers(1, 6))), K4, 1))


# ---- scenario files --------------------------------------------------------------------------

HEADS = ("faults(topology, settings)", "faults()", "faults(t, s, more)", "faults(*all)", "other()")
BODIES = (
    *("pass", "return FaultPlan()", "return FaultPlan((Fault(3, 0.5),))", "return None", "exit()"),
    *("raise SystemExit('bye')", "raise KeyError", "raise ValueError('a\\nb')", "return 1 / 0"),
    *("return FaultPlan((Fault(-1, 0.5),))", "return FaultPlan((Fault(3, 7.0),))", "assert False"),
    *("return FaultPlan((Fault(3, 1, 'zap'),))", "return FaultPlan((Fault(999, 0.5),))"),
    *("return FaultPlan((Fault(3, .5), Fault(3, .5)))", "return [Fault(3, 0.5)]", "return faults"),
    *(
        "return faults(1, 2)",
        "raise MemoryError",
    ),
    *("return FaultPlan((Fault(3, .5, schedule=((7, 8),)),))", "yield 1", "import nothing_there"),
    *("raise type('\\x1b[31m', (Exception,), {})('[red]')", "raise GeneratorExit", "return)"),
)
ENDS = (
    *("SCENARIO = Scenario(make_faults=faults)",) * 5,
    *("SCENARIO = Scenario(defaults={'k': 'x'})", "SCENARIO = Scenario(defaults={1: 2})", ""),
    *("SCENARIO = 3", "SCENARIO = Scenario(1, 2, 3)", "SCENARIO = Scenario", "raise SystemExit"),
    *("import sys; sys.exit(0)", "SCENARIO = Scenario(make_faults=len)"),
)


def try_scenario_file(folder: Path, rng: Rng) -> None:
    code = (
        "from canary import Scenario\n"
        "from testbed.faults.plan import Fault, FaultPlan\n"
        f"def {rng.choice(HEADS[:1] * 4 + HEADS)}:\n    {rng.choice(BODIES)}\n{rng.choice(ENDS)}\n"
    )
    if rng.random() < 0.2:
        code = code[: rng.integers(len(code))]
    path = folder / "mine.py"
    path.write_text(code)
    try:
        plan = load_scenario(str(path)).faults(K4, SETTINGS)
    except SettingsError as error:
        assert str(path) in str(error), error
        raise
    check_plan(plan)


# ---- all of them -----------------------------------------------------------------------------

KINDS: dict[str, Try] = {
    "captures": try_capture,
    "fault files": try_fault_file,
    "fault texts": try_fault_text,
    "scenario files": try_scenario_file,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [TODAY, pytest.param(NIGHTLY, marks=pytest.mark.nightly)])
def test_wrong_inputs_are_refused_in_one_line(
    kind: str,
    count: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends: Counter[str] = Counter()
    for number in range(count):
        rng = np.random.default_rng([0xBAD, number])
        begin = time.process_time()
        try:
            KINDS[kind](tmp_path, rng)
        except (CaptureError, FaultError, SettingsError) as error:
            assert str(error) and len(str(error).splitlines()) == 1, (number, str(error))
            ends["refused in one line"] += 1
        except BaseException as error:
            pytest.fail(f"{kind} number {number}: {type(error).__name__}: {error}")
        else:
            ends["used"] += 1
        assert time.process_time() - begin < LONGEST_S * slowness(), number
    with capsys.disabled():
        print(f"\n{kind}: {count} tried, {', '.join(f'{n} {end}' for end, n in ends.items())}")
    assert ends.total() == count and min(ends.values()) > 0 and len(ends) == 2
