# SPDX-License-Identifier: Apache-2.0
"""What the client of a long batch learns of the updates that failed."""

from __future__ import annotations

import base64

import pytest

from canary_softswitch import limits
from canary_softswitch.device.messages import (
    ALREADY_EXISTS,
    RESOURCE_EXHAUSTED,
    BatchError,
    P4Error,
    code_pb2,
    p4runtime_pb2,
    status_pb2,
    summary,
)
from testbed.softswitch.tests.server.client import Client, Refused

FULL = P4Error(RESOURCE_EXHAUSTED, "table 't': it is full (3 entries)")


def codes(status: bytes) -> list[int]:
    out = []
    for detail in status_pb2.Status.FromString(status).details:
        error = p4runtime_pb2.Error()
        assert detail.Unpack(error)
        out.append(error.canonical_code)
    return out


def test_a_short_batch_has_an_error_for_each_update() -> None:
    error = BatchError([None, FULL, None, P4Error(ALREADY_EXISTS, "it is there")])
    assert codes(error.status) == [0, RESOURCE_EXHAUSTED, 0, ALREADY_EXISTS]
    assert error.message == (
        "2 of 4 updates failed. RESOURCE_EXHAUSTED, table 't': it is full (3 entries): 1; "
        "ALREADY_EXISTS, it is there: 3"
    )


def test_the_summary_names_updates_in_a_row_together() -> None:
    assert summary([None] * 3 + [FULL] * 4 + [None, FULL]) == (
        "5 of 9 updates failed. RESOURCE_EXHAUSTED, table 't': it is full (3 entries): 3 to 6, 8"
    )


@pytest.mark.parametrize(
    "errors",
    [
        [None] * 1024 + [FULL] * 8976,
        [FULL if i % 2 else None for i in range(3000)],
        [P4Error(3, f"{i}: " + "y" * 300) for i in range(3000)],
        [P4Error(3, "é" * 3000)] * 200,
        [None] * 9_999 + [FULL],
    ],
    ids=["many", "every second", "each its own", "long and not ASCII", "the last"],
)
def test_the_status_fits_in_metadata(errors: list[P4Error | None]) -> None:
    error = BatchError(errors)
    size = len(error.message) + len(base64.b64encode(error.status)) + limits.STATUS_BYTES // 20
    assert size < limits.STATUS_BYTES
    listed = codes(error.status)  # the first updates of the batch, in their order
    assert listed == [0 if e is None else e.code for e in errors[: len(listed)]]
    failed = sum(e is not None for e in errors)
    assert error.message.startswith(f"{failed} of {len(errors)} updates failed. ")
    assert error.message.isascii()


def test_thousands_of_updates_of_which_most_fail(client: Client) -> None:
    updates = [("insert", client.route(0x0B000000 + i, 32, 1)) for i in range(3000)]
    with pytest.raises(Refused) as e:
        client.write(*updates)
    assert e.value.message == (
        "1976 of 3000 updates failed. RESOURCE_EXHAUSTED, table 'CanaryIngress.routing.routes': "
        "it is full (1024 entries): 1024 to 2999"
    )
    assert len(e.value.codes) > 100 and set(e.value.codes) == {code_pb2.OK}
