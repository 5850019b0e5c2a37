"""The generated modules of P4Runtime: their classes are made at import, so they have no types."""

from __future__ import annotations

from typing import Any

import google.protobuf.any_pb2 as _any
import google.rpc.code_pb2 as _code
import google.rpc.status_pb2 as _status
import p4.config.v1.p4info_pb2 as _p4info
import p4.v1.p4data_pb2 as _p4data
import p4.v1.p4runtime_pb2 as _p4runtime

any_pb2: Any = _any
code_pb2: Any = _code
status_pb2: Any = _status
p4info_pb2: Any = _p4info
p4data_pb2: Any = _p4data
p4runtime_pb2: Any = _p4runtime
