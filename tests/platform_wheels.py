# SPDX-License-Identifier: Apache-2.0
"""Wheels for one platform: those of pure Python with the compiled libraries in them.

All are made on one machine: zig's C compiler has the headers and libraries of every platform. The
libraries are in `canary_prebuilt`, a folder beside the packages, each under a hash of what it is
compiled from (`canary_softswitch.compiler.build.prebuilt_name`), so that the library of another
text is never taken. They run on every processor of their kind, and with the C library that the
wheels of NumPy and pyarrow ask for.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from canary_softswitch.compiler import build
from canary_softswitch.compiler.source import read_file, translate
from canary_softswitch.ports import ports
from scenarios.command.warm_up import c_files
from scenarios.experiment.settings import Settings
from testbed import kernels
from testbed.control.forwarding import needed_entries
from testbed.cores import usable_cores
from testbed.dataplane import VERDICT
from testbed.dataplane.adapted import adapted_program
from testbed.network import hosts, virtual
from tests.conftest import inputs_for

PACKAGES = ("canary_testbed", "canary_softswitch")
PROGRAMS: tuple[tuple[Literal["virtual", "softswitch"], int], ...] = (
    ("virtual", 4),
    ("virtual", 8),
    ("virtual", 16),
    ("softswitch", 4),
)
"""Backend and K of the runs whose switch program is held compiled; others change its constants."""


@dataclass(frozen=True)
class Platform:
    """A platform: ``tag`` is what pip calls it, ``target`` zig, and ``folder`` the soft switch."""

    tag: str
    target: str
    folder: str

    @property
    def linux(self) -> bool:
        return self.folder.startswith("linux")


PLATFORMS = (
    Platform("manylinux_2_28_x86_64", "x86_64-linux-gnu.2.28", "linux-x86_64"),
    Platform("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", "linux-aarch64"),
    Platform("macosx_11_0_x86_64", "x86_64-macos.11.0", "darwin-x86_64"),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0", "darwin-arm64"),
)


@dataclass(frozen=True)
class Text:
    """A C text that is compiled to a library, and its flags beyond those of every library."""

    name: str
    code: str
    flags: tuple[str, ...]
    linux: bool = False
    """Whether only Linux has what it calls."""


def texts(package: str) -> Iterator[Text]:
    """Yield every text that a package compiles whatever its user does."""
    if package == "canary_softswitch":
        yield Text("ports", ports.c_text(), ports.FLAGS, linux=True)
        return
    for room in ("testbed", "analysis", "scenarios"):
        for file in c_files(room):
            if kernels.has_kernels(file):
                yield Text("-".join(file.parts[-3:]), kernels.c_text(file), kernels.FLAGS)
    yield Text("virtual", virtual.c_text(), virtual.FLAGS)
    yield Text("hosts", hosts.c_text(), hosts.FLAGS, linux=True)
    for backend, k in PROGRAMS:
        yield Text(f"{backend}-{k}", _program(backend, k), build.PACKETS)


def _program(backend: Literal["virtual", "softswitch"], k: int) -> str:
    """Return the C of the switch program of a run whose other settings are the defaults."""
    inputs = inputs_for(Settings(backend=backend, k=k, load=0.01))
    entries = needed_entries(inputs.fabric, inputs.segments)
    real = inputs.network.real_time
    observed = None if real else VERDICT.field
    with tempfile.TemporaryDirectory() as folder:
        program = adapted_program(Path(folder), inputs.limits.icmp, entries, real)
        return translate(read_file(program.json), str(program.json), observed).code


def compiled(text: Text, platform: Platform, *warnings: str) -> bytes:
    """Return the library of a text for a platform; ``warnings`` are flags that ask for them.

    Raises:
        RuntimeError: The compiler refused the text, or warned of something in it.
    """
    flags = [flag for flag in text.flags if platform.linux or not flag.startswith("-Wl,")]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", platform.target, "-s"]
    command += [*build.FLAGS, *flags, *warnings, "-o", "program.so", "program.c"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.c").write_text(text.code)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            raise RuntimeError(f"{text.name} for {platform.tag}: {done.stderr[:2000]}")
        return Path(folder, "program.so").read_bytes()


def libraries(package: str, platform: Platform) -> dict[str, bytes]:
    """Return the libraries of a package for a platform, each under its name in the wheel."""
    wanted = [text for text in texts(package) if platform.linux or not text.linux]
    with ThreadPoolExecutor(usable_cores()) as pool:
        made = pool.map(compiled, wanted, [platform] * len(wanted))
        return {
            f"{build.PREBUILT.parent.name}/{platform.folder}/"
            f"{build.prebuilt_name(text.code, text.flags)}": library
            for text, library in zip(wanted, made, strict=True)
        }


def platform_wheels(folder: Path, platforms: Sequence[Platform] = PLATFORMS) -> list[Path]:
    """Write the wheels of platforms beside those of pure Python in a folder, and return their
    paths. The soft switch has no library for macOS, and so no wheel of its own there."""
    made = []
    for package in PACKAGES:
        [pure] = folder.glob(f"{package}-*-py3-none-any.whl")
        for platform in platforms:
            if held := libraries(package, platform):
                made.append(for_platform(pure, platform.tag, held))
    return made


def for_platform(pure: Path, tag: str, held: Mapping[str, bytes]) -> Path:
    """Write the wheel of a platform beside one of pure Python, and return its path.

    Args:
        pure: The wheel of pure Python.
        tag: The platform.
        held: What it has beyond that wheel: files by their name in it.
    """
    path = pure.with_name(re.sub(r"-any\.whl$", f"-{tag}.whl", pure.name))
    with zipfile.ZipFile(pure) as file:
        files = {entry: file.read(entry) for entry in file.infolist()}
    info = "-".join(pure.name.split("-")[:2]) + ".dist-info"
    [kind] = [entry for entry in files if entry.filename == f"{info}/WHEEL"]
    [record] = [entry for entry in files if entry.filename == f"{info}/RECORD"]
    files[kind] = (
        files[kind]
        .replace(b"Root-Is-Purelib: true\n", b"Root-Is-Purelib: false\n")
        .replace(b"Tag: py3-none-any\n", f"Tag: py3-none-{tag}\n".encode())
    )
    del files[record]
    for name, data in sorted(held.items()):
        entry = zipfile.ZipInfo(name, kind.date_time)
        entry.external_attr = 0o100755 << 16  # a regular file that can be run
        files[entry] = data
    files[record] = _record({entry.filename: data for entry, data in files.items()}, record)
    with zipfile.ZipFile(path, "w") as wheel:
        for entry, data in files.items():
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def _record(files: Mapping[str, bytes], record: zipfile.ZipInfo) -> bytes:
    """Return the list of a wheel's files, by name, with their hashes and sizes."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        lines.writerow((name, f"sha256={digest.decode()}", len(data)))
    lines.writerow((record.filename, "", ""))
    return text.getvalue().encode()
