# SPDX-License-Identifier: Apache-2.0
"""The measurement ``flows``: the end hosts' records of their flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.measurements.measurement import Budget, Measurement, Simulated
from testbed.record.run_tables import FLOWS

if TYPE_CHECKING:
    from testbed.measurements.measurement import SimulatedRun

FLOW_RECORDS = 4_000_000
"""The most flow records kept of a run without packets on a fabric of few hosts; more flows are
sampled."""

RECORDS_OF_HOST = 256
"""The records for each host from which that limit is larger, as each host keeps those of its own
flows: from 15,625 hosts on, so with K=48. By default a host begins some 190 flows in a run."""


def flow_records(n_hosts: int) -> int:
    """Return the most flow records kept of a run without packets on a fabric of ``n_hosts``."""
    return max(FLOW_RECORDS, RECORDS_OF_HOST * n_hosts)


class Flows(Measurement):
    """The records of all flows. They are a part of every run, as other tables refer to them."""

    name = "flows"
    view = "flows"
    help = "the end hosts' records of their flows"
    unseen = "more LOAD, or probes as of TELEMETRY=A1+A2+P, crosses them"
    budgets = (
        Budget(
            name="flow records",
            does="stores",
            what="flow records",
            per="run",
            option="",
            fixed=f"{FLOW_RECORDS:,} without packets, or {RECORDS_OF_HOST} a host if that is more; "
            "else all",
            paper="Flock, section 3.1; the limit is this project's",
            feeds="a smaller LOAD or fewer EPOCHS",
        ),
    )
    tables = (FLOWS,)
    always = True

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated:
        """Return the share of the flows that has a record; the run itself draws the flows."""
        del plan
        recorded = run.process.recorded(run.duration_s, run.records)
        return Simulated({}, {"flows_recorded": recorded})
