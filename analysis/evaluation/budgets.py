# SPDX-License-Identifier: Apache-2.0
"""What each measurement of a run asked for and what it got, computed from the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.methods.base import Localizer
from analysis.telemetry.identifiability import Identifiability, Observations
from analysis.telemetry.telemetry import Connections, Probes, SegmentCounts, Telemetry
from testbed.measurements.measurement import ENOUGH
from testbed.measurements.registry import BUDGETS, MEASUREMENTS, budget, view_of
from testbed.record.documents import Measured, Use
from testbed.record.flow_ids import TCP
from testbed.record.run import Record, whole_fabric
from testbed.record.run_tables import PLANS

HALF = 0.5
"""If a smaller share of segments and epochs reaches a target, the run reports it as missed."""


def measured(record: Record, telemetry: Telemetry) -> dict[str, Measured]:
    """Return the use of every measurement of a run, in the order of `MEASUREMENTS`."""
    found: dict[str, Measured] = {}
    if telemetry.segments is not None:
        found["segments"] = _segments(record, telemetry.segments)
    for name, plan in zip(("probes", "detector"), PLANS, strict=True):
        part: Probes | None = getattr(telemetry, name)
        if part is not None:
            found[name] = _probes(record, part, plan)
    if telemetry.connections is not None:
        found["connections"] = _connections(record, telemetry.connections)
    if telemetry.flows is not None:
        found["flows"] = _flows(record)
    return found


def _segments(record: Record, counts: SegmentCounts) -> Measured:
    network, config = record.network, record.config
    segments, sent = counts.segments, counts.sent
    monitors = set(np.concatenate((segments.upstream, segments.downstream)).tolist())
    readings = len(monitors) * len(sent)
    void = {*map(tuple, network.get("unread", ())), *map(tuple, network.get("restarted", ()))}
    got = readings - sum(switch in monitors for _, switch in void)
    budgets: dict[str, Use] = {"meters": {"asked": readings, "got": got}}
    installed = network.get("rules_installed")
    if installed is not None:
        asked = installed + network.get("rules_refused", 0)
        budgets["rules"] = {"asked": asked, "got": installed}
    if "alpha" in config:
        reached = int((sent >= config["alpha"]).sum())
        budgets["alpha"] = {"asked": sent.size, "got": reached}
    reached = network.get("beta_reached")
    if reached is None and "beta" in config and record.has("selection"):
        reached = int((record.table("selection")["flows"] >= _beta(record)).sum())
    if reached is not None:
        budgets["beta"] = {"asked": sent.size, "got": reached}
    observed = sent.sum(axis=0) > 0
    result: Measured = {
        "budgets": budgets,
        "packets": int(sent.sum()),
        "links_unobserved": _unobserved(record, counts),
        "segments_unobserved": int((~observed).sum()),
    }
    for name, figure in (
        ("installed", "rules_installed"),
        ("removed", "rules_removed"),
        ("digests", "digests"),
        ("counters_read", "counters_read"),
        ("control_bytes", "control_bytes"),
    ):
        if figure in network:
            result[name] = network[figure]
    if record.has("selection") and (later := sent.size - sent.shape[1]):
        selection = record.table("selection")
        new = selection["installed"][selection["epoch"] > selection["epoch"].min(initial=0)]
        result["unchanged"] = {"asked": later, "got": later - int((new > 0).sum())}
        result["installed_later"] = int(new.sum())
    if missed := _missed(budgets, config.get("alpha", 0), _beta(record)):
        result["remarks"] = [missed]
    return result


def _beta(record: Record) -> int:
    """Return the controller's target of flows on a segment: BETA, or what meters tell apart."""
    return min(record.config.get("beta", 0), record.network.get("flows_a_segment", 1 << 31))


def _missed(budgets: Mapping[str, Use], alpha: int, beta: int) -> str:
    """Return a sentence that names the targets that most segments and epochs miss, if any."""
    missed = [
        f"{name.upper()}={target} in {_share(budgets[name]):.0%}"
        for name, target in (("alpha", alpha), ("beta", beta))
        if name in budgets and _share(budgets[name]) < HALF
    ]
    if not missed:
        return ""
    return (
        f"targets missed: reached are {' and '.join(missed)} of segments and epochs, and the "
        "controller asks for more flows than exist: use smaller targets, a smaller "
        "ETA, a longer EPOCH_MS or more LOAD"
    )


def _share(use: Use) -> float:
    """Return the share of what was asked for that was granted; 1 if nothing was asked for."""
    return use["got"] / use["asked"] if use["asked"] else 1.0


def _probes(record: Record, part: Probes, plan: str) -> Measured:
    sent = int(part.sent.sum())
    budgets: dict[str, Use] = {}
    if "probes" in record.config:
        plans = np.array(record.table("probe_paths")["plan"])
        rows = plans[record.table("probe_counts")["path"]]
        each, mine = record.config["probes"], int((rows == plan).sum())
        name = "probes"
        if plan != PLANS[0]:
            name = "matrix probes"
            each = budget(name).probes_each(record.fabric, mine, each)
        budgets[name] = {"asked": each * mine, "got": sent}
    unobserved = _unobserved(record, part)
    return {"budgets": budgets, "packets": sent, "links_unobserved": unobserved}


def _connections(record: Record, part: Connections) -> Measured:
    network, flows = record.network, record.table("flows")
    lossy = flows["lost"] > 0
    if "protocol" in flows:
        lossy &= flows["protocol"] == TCP
    traced = lossy[record.table("connections")["flow"]]
    budgets: dict[str, Use] = {"traceroutes": {"asked": int(lossy.sum()), "got": int(traced.sum())}}
    if "icmp_messages" in network and "icmp_refused" in network:
        got = network["icmp_messages"]
        budgets["ICMP messages"] = {"asked": got + network["icmp_refused"], "got": got}
    unobserved = _unobserved(record, part, *([] if part.watched is None else [part.watched]))
    packets = network["traceroute_packets"]
    return {"budgets": budgets, "packets": packets, "links_unobserved": unobserved}


def _flows(record: Record) -> Measured:
    flows = record.table("flows")
    got = len(flows["sent"])
    asked = round(got / max(record.network.get("flows_recorded", 1.0), 1e-9))
    return {
        "budgets": {"flow records": {"asked": asked, "got": got}},
        "packets": int(flows["sent"].sum()),
    }


def _unobserved(record: Record, *observations: Observations) -> int:
    """Return the number of directed links that none of the observations crosses."""
    tells = Identifiability.of(whole_fabric(record).n_links, observations)
    return int((~tells.observed).sum())


def fed(
    method: Localizer, telemetry: Telemetry, use: Mapping[str, Measured]
) -> tuple[Sequence[str], float, str] | None:
    """Return the measurements that a method reads, the least share that one of them got of a budget
    that it asked for, and the name of that budget.

    None for a method that does not say what it reads. A target such as α is not a budget: a run
    that misses it has still measured everything there was.
    """
    reads = getattr(method, "measurements", None)
    if reads is None:
        return None
    names: Sequence[str] = [name for name in reads(telemetry) if name in use]
    shares = [
        (each["got"] / each["asked"], name)
        for measurement in names
        for name, each in use[measurement]["budgets"].items()
        if each["asked"] and budget(name).does != "wants"
    ]
    share, least = min(shares, default=(1.0, ""))
    return names, min(share, 1.0), least


def starving(name: str, use: Mapping[str, Measured]) -> str:
    """Return a sentence on a starved method: what it got of a budget, and which setting raises
    it."""
    what = budget(name)
    each = use[view_of(name)]["budgets"][name]
    return (
        f"starved: {each['got']:,} of the {each['asked']:,} {what.what} that it asked for "
        f"({each['got'] / each['asked']:.0%}, less than {ENOUGH:.0%}); it needs {what.feeds}"
    )


def measured_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each measurement of a run's summary: what it asked for, got and took."""
    use: Mapping[str, Any] = summary.get("measured", {})
    epochs = max(summary.get("epochs", 1), 1)
    return [
        f"{name}, {MEASUREMENTS[name]}: " + "; ".join(_parts(name, use[name], epochs))
        for name in MEASUREMENTS
        if name in use
    ]


def missed_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each measurement whose targets the run's settings cannot reach."""
    use: Mapping[str, Any] = summary.get("measured", {})
    return [
        f"{name}: {line}" for name, measured in use.items() for line in measured.get("remarks", ())
    ]


def _parts(name: str, measured: Measured, epochs: int) -> Iterator[str]:
    budgets = measured["budgets"]
    for each in BUDGETS:
        if each.name in budgets and view_of(each.name) == name:
            asked, got = budgets[each.name]["asked"], budgets[each.name]["got"]
            if each.does == "wants":
                share = _share(budgets[each.name])
                yield f"{each.option.upper()} reached in {share:.0%} of segments and epochs"
            else:
                yield f"{got:,} of {asked:,} {each.counted or each.what}"
    if "digests" in measured:
        changes = measured.get("installed", 0) + measured.get("removed", 0)
        counters = measured.get("counters_read", 0)
        size = (
            f", {measured['control_bytes'] / epochs:,.0f} bytes"
            if "control_bytes" in measured
            else ""
        )
        yield (
            f"an epoch {measured['digests'] / epochs:,.0f} digests, "
            f"{changes / epochs:,.0f} changes of rules and {counters / epochs:,.0f} readings of "
            f"their counters{size}"
        )
    if "unchanged" in measured and epochs > 1:
        later = measured.get("installed_later", 0) / (epochs - 1)
        yield (
            f"after the first epoch {later:,.0f} new rules an epoch, "
            f"in {_share(measured['unchanged']):.0%} of segments and epochs none"
        )
    for key, what in (("links_unobserved", "links"), ("segments_unobserved", "segments")):
        if key in measured:
            yield f"{what} never observed: {measured[key]:,}"
