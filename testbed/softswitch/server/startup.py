"""Running a program from the start, without a controller's P4Info."""

from __future__ import annotations

from pathlib import Path

from google.protobuf import text_format
from google.protobuf.text_format import ParseError

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.server.config import PipelineConfig
from testbed.softswitch.server.messages import p4info_pb2
from testbed.softswitch.server.p4runtime import Device
from testbed.softswitch.server.values import P4Error

SUFFIXES = (".p4info.txtpb", ".p4info.txt", ".p4info.pb.txt")


def start_program(device: Device, path: str) -> None:
    """Run a BMv2 JSON file, with the P4Info file beside it when there is one.

    Without P4Info the program runs with the entries it declares, Thrift serves its registers,
    and P4Runtime knows no entity of it.
    """
    json = Path(path)
    try:
        code = json.read_bytes()
    except OSError as e:
        raise SoftSwitchError(f"cannot read {path}: {e.strerror}") from None
    p4info = p4info_pb2.P4Info()
    beside = [json.with_name(json.name.removesuffix(".json") + s) for s in SUFFIXES]
    for file in beside:
        if file.is_file():
            try:
                text_format.Parse(file.read_text(encoding="utf-8"), p4info)
            except (OSError, UnicodeDecodeError, ParseError) as e:
                reason = str(e).splitlines()[0]
                raise SoftSwitchError(f"cannot read {file}: {reason}") from None
            break
    try:
        device.commit(device.pipeline_of(PipelineConfig(p4info, code, drop_port=device.drop_port)))
    except P4Error as e:
        raise SoftSwitchError(f"{path}: {e.message}") from None
