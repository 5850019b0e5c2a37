# SPDX-License-Identifier: Apache-2.0
"""Limits of the resources that clients of a switch process may use.

A client that exceeds a limit is refused or disconnected, without effect on the others. The limits
apply to all clients together, so a client that is refused may try again later.
"""

from __future__ import annotations

MIB = 1 << 20

# ---- P4Runtime ----

#: Bytes of a request. The specification asks for at least 4 MiB. The largest BMv2 programs have
#: some MiB, and a Write of this size holds about 150,000 table entries.
REQUEST_BYTES = 16 * MIB
#: Bytes of all requests that are in work at a time.
IN_WORK_BYTES = 128 * MIB
#: Calls at a time, and of these the ones whose request has not arrived; one more ends the oldest.
CALLS, COMING_CALLS = 1024, 64
#: Seconds in which the request of a call must arrive, or the client must take the next answer.
CALL_SECONDS = 30.0
#: Streams. One more ends the oldest stream without a role, and is refused if every stream has one.
STREAMS = 256
#: Bytes that wait for a stream's client. Packets, digests and notifications beyond are dropped.
OUTBOX_BYTES = 2 * MIB
#: Seconds after which a stream ends whose client takes nothing while its outbox is full.
OUTBOX_SECONDS = 10.0
#: Bytes that gRPC's clients take as the status of a call, unless they are told otherwise.
STATUS_BYTES = 8192
#: Connections; further ones are closed. HTTP/2 must be agreed in ``HANDSHAKE_SECONDS``.
GRPC_CONNECTIONS = 400
HANDSHAKE_SECONDS = 10.0
#: Seconds until an idle peer is asked for a sign of life, and in which it must answer.
KEEPALIVE_SECONDS, ALIVE_SECONDS = 60.0, 20.0
#: Seconds without a call after which a connection is closed. gRPC's clients open it again.
IDLE_SECONDS = 300.0
#: Threads that serve requests, and others for Reads, which may be long.
THREADS, READING_THREADS = 6, 2

# ---- Thrift ----

#: Connections; one more ends the one that has been idle for longest.
THRIFT_CONNECTIONS = 128
#: Bytes of a message, where each value that it contains counts as ``VALUE_BYTES``.
THRIFT_BYTES = MIB
VALUE_BYTES = 64
#: Bytes of registers that a call of ``columns:read`` may ask for.
COLUMNS_BYTES = 64 * MIB
#: Seconds in which the first message must come, a message must go on, and an answer be taken.
THRIFT_SECONDS = 30.0
