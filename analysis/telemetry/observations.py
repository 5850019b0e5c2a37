# SPDX-License-Identifier: Apache-2.0
"""Read the telemetry that methods may use from the record of a run.

If the raw registers were recorded, Canary's segment counts are computed from them here, so that a
run can be analysed again without the network.

The setting TELEMETRY says what methods may know of probes and flows, in the kinds of Flock's
section 6.2, joined by ``+``:

    A1    probes between hosts and the highest tier, paths known
    A2    flows that lost packets, with the path that 007's agents traced
    P     all flow records, with their equal-cost paths
    INT   all flow records, with the path each took; and A1

Canary's segments, 007's connections and deTector's probes are available with any kinds.

Where a link of a host was faulty, everything that hosts measure is told with the links of the hosts
before and behind its path, as 007, Flock and NetBouncer have them in their graphs. Segments, which
lie between switches, do not cross them.

Where switches did not choose an uplink by the hash of a flow (``ROUTING``), flows have no path of
their own: A2 tells none, and a flow that left a switch may be at any next one, as if its route had
changed. Traceroutes are told as they are: each shows one of the ways that packets of its connection
took.
"""

from __future__ import annotations

from typing import Any

from analysis.telemetry.telemetry import PARTS, Telemetry
from analysis.telemetry.views.registry import VIEWS
from analysis.telemetry.views.source import Source
from testbed.measurements.registry import STANDARD, find_measurement, measurement_names
from testbed.record.run import Record, whole_fabric


def read_telemetry(record: Record, kinds: str | None = None) -> Telemetry:
    """Return the telemetry of a run that methods may use; what was not measured is missing.

    Args:
        record: The run's record.
        kinds: Kinds of telemetry, see the module's text; by default those of the run's settings.

    Raises:
        testbed.record.run.RunError: A table is missing or damaged.
        MissingTelemetry: INT is asked for, but the paths of flows were not recorded.
    """
    source = Source(record, (kinds or record.config["telemetry"]).split("+"))
    named = record.config.get("measurements", [each.name for each in STANDARD])
    views: dict[str, Any] = {}
    for name in (each for each in named if each in measurement_names()):  # that are installed here
        measurement = find_measurement(name)
        if (view := measurement.view) in VIEWS:
            views[view] = VIEWS[view].read(source)
        else:
            tables = {each.name: record.table(each.name) for each in measurement.tables}
            views[view] = measurement.read(tables)
    return Telemetry(
        topology=whole_fabric(record),
        monitors=record.config["monitors"],
        canary_bytes=record.network["canary_bytes"],
        off=source.off_links,
        **{part: views.pop(part, None) for part in PARTS},
        views=views,
    )
