# SPDX-License-Identifier: Apache-2.0
"""The views that are made of more than a measurement's own tables, or of which summaries speak."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.telemetry.views import connections, flows, probes, segments, spray_counts
from analysis.telemetry.views.view import View

VIEWS: Mapping[str, View] = {
    "segments": View(segments.segments, segments.used, segments.unseen),
    "probes": View(probes.probes, probes.used, probes.unseen),
    "detector": View(probes.detector, probes.used_by_detector, probes.unseen),
    "connections": View(connections.connections, connections.used, connections.unseen),
    "flows": View(flows.flows, flows.used, flows.unseen),
    "int": View(flows.int_flows),
    "spray_check": View(spray_counts.spray_counts),
}
"""Every view by its name, in the order of a run's summary. Others are what their measurement's
`testbed.measurements.measurement.Measurement.read` returns."""
