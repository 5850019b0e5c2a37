# SPDX-License-Identifier: Apache-2.0
"""A small fabric file and observations file, and ways to change them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Telemetry
from testbed.record.fabric_file import read_fabric

FABRIC = """\
# localization-telemetry fabric 1
link,src,dst,src_tier,dst_tier
10,leaf0,spine0,0,1
11,spine0,leaf0,1,0
20,leaf1,spine0,0,1
21,spine0,leaf1,1,0
30,leaf0,spine1,0,1
31,spine1,leaf0,1,0
40,leaf1,spine1,0,1
41,spine1,leaf1,1,0
"""

OBSERVATIONS = """\
# localization-telemetry observations 1
id,kind,epoch,src,dst,paths,nodes,sent,lost,retransmissions
1,active,,,,10 11,,100,40,
2,active,,,,30 31,,100,0,
3,active,,,,20 21,,100,0,
4,active,,,,,leaf1 spine1 leaf1,100,0,
5,passive,,leaf0,leaf1,,,5000,,900
6,passive,,,,10 21|30 41,,400,90,
7,passive,,leaf1,leaf0,40 31,,1000,,0
8,passive,,leaf1,leaf1,,,70,,0
9,segment,0,,,10 21,,1000,400,
10,segment,1,,,10 21,,1000,380,
11,segment,,,,30 41,,900,0,
12,connection,,leaf0,leaf1,10 21,,,,9
13,connection,,leaf0,leaf1,10,,,3,
14,connection,,leaf0,leaf1,,,50,,1
"""


class Files:
    """A folder with both files; `read` reads what they are now."""

    def __init__(self, folder: Path) -> None:
        self.fabric = folder / "fabric.csv"
        self.observations = folder / "observations.csv"
        self.fabric.write_text(FABRIC)
        self.observations.write_text(OBSERVATIONS)

    def read(self) -> Telemetry:
        return read_observations(self.observations, read_fabric(self.fabric))

    def split(self, rows: int, suffix: str = ".csv") -> list[Path]:
        """Make the observations a folder of parts of ``rows`` rows each, as Spark writes it."""
        first, names, *lines = self.observations.read_text().splitlines()
        text = [
            "\n".join([first, names, *lines[at : at + rows]]) + "\n"
            for at in range(0, len(lines), rows)
        ]
        self.observations = self.observations.with_suffix("")
        data = [one.encode() for one in text]
        return spark_folder(
            self.observations,
            [gzip.compress(d) if suffix == ".csv.gz" else d for d in data],
            suffix,
        )


def spark_folder(folder: Path, parts: Sequence[bytes], suffix: str) -> list[Path]:
    """Write the parts of a table beside the files without data that Spark leaves; return theirs."""
    folder.mkdir()
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "._SUCCESS.crc").write_bytes(b"crc\0")
    files: list[Path] = []
    for i, data in enumerate(parts):
        name = f"part-{i:05}-8a2f-c000{suffix}"
        (folder / name).write_bytes(data)
        (folder / f".{name}.crc").write_bytes(b"crc\0")
        files.append(folder / name)
    return files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
