# SPDX-License-Identifier: Apache-2.0
"""The measurement ``flows``: the end hosts' records of their flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.measurements.measurement import Budget, Measurement, Simulated
from testbed.network.flow import FLOW_RECORDS, RECORDS_OF_HOST
from testbed.record.run_tables import FLOWS

if TYPE_CHECKING:
    from testbed.measurements.measurement import SimulatedRun


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
