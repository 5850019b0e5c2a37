"""Running a program from the start, without a controller's P4Info."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.text_format import ParseError

from testbed.softswitch.compiler.source import read_file, translate
from testbed.softswitch.errors import InvalidProgram
from testbed.softswitch.runtime.program import Program
from testbed.softswitch.server.config import PipelineConfig
from testbed.softswitch.server.device import Device
from testbed.softswitch.server.messages import p4info_pb2

SUFFIXES = (".p4info.txtpb", ".p4info.txt", ".p4info.pb.txt", ".p4.p4info.txtpb", ".p4.p4info.txt")


def start_program(device: Device, path: str, failed: Callable[[str], None]) -> None:
    """Run a BMv2 JSON file, with the P4Info file beside it when there is one.

    It is compiled in a thread, while the device is reached already; ``failed`` hears when it does
    not compile. Without P4Info the program runs with the entries it declares, Thrift serves it, and
    P4Runtime knows no entity of it.

    Raises:
        InvalidProgram: A file cannot be read, or has no program that is valid.
        UnsupportedProgram: The switch cannot run the program.
    """
    code = read_file(path)
    p4info = _p4info_beside(Path(path))
    source = translate(code, path, drop_port=device.drop_port)  # what is wrong is said at once
    device.start(
        lambda: PipelineConfig(p4info, code, program=Program(source, None)),
        lambda why: failed(f"{path}: {why}"),
    )


def _p4info_beside(json: Path) -> Any:
    p4info = p4info_pb2.P4Info()
    beside = [json.with_name(json.name.removesuffix(".json") + s) for s in SUFFIXES]
    for file in beside:
        if file.is_file():
            try:
                text_format.Parse(file.read_text(encoding="utf-8"), p4info)
            except (OSError, UnicodeDecodeError, ParseError) as e:
                reason = str(e).splitlines()[0]
                raise InvalidProgram(f"cannot read {file}: {reason}") from None
            break
    return p4info
