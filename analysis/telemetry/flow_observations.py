"""The telemetry of a run without packets, in the kinds that Flock's section 6.2 names.

    A1    probes between hosts and the highest tier, paths known
    A2    flows that lost packets, with the path that 007's agents traced
    P     all flow records, with their equal-cost paths
    INT   all flow records, with the path each took; and A1

Kinds are joined by ``+``: ``A1+P`` is what the packet networks measure. Canary's segments, 007's
connections and deTector's probes are there whatever the kinds.
"""

from __future__ import annotations

import numpy as np

from analysis.telemetry.telemetry import Connections, Flows, Probes, SegmentCounts, Telemetry
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets
from testbed.fabric.segments import segments
from testbed.fabric.topologies import make_fabric
from testbed.network.flow import FlowRecords, Observation
from testbed.record.run import RunDirectory

__all__ = ["KINDS", "flow_telemetry", "telemetry_of"]

KINDS = ("A1", "A2", "P", "INT")


def flow_telemetry(run: RunDirectory) -> Telemetry:
    """The telemetry of a finished run without packets."""
    config, network = run.config, run.json("network.json")
    fabric = make_fabric(config["topology"], config["k"], config["seed"])
    ecmp = Ecmp(fabric)
    parts = segments(ecmp, config["monitors"])
    counts, flows, probes, planned, traces = (
        run.table(name) for name in ("segments", "flows", "probes", "detector", "connections")
    )
    metered = np.zeros((2, run.epochs, len(parts)), np.int32)
    at = counts["epoch"], counts["segment"]
    metered[0][at], metered[1][at] = counts["sent"], counts["lost"]
    shape = (-1, fabric.hosts_per_tor)
    seen = Observation(
        fabric=fabric,
        segments=parts,
        metered_sent=metered[0],
        metered_lost=metered[1],
        flows=FlowRecords(
            flows["src_tor"], flows["dst_tor"], flows["sent"], flows["lost"], flows["path"]
        ),
        bounces=ecmp.bounces(),
        probed_sent=probes["sent"].reshape(shape),
        probed_lost=probes["lost"].reshape(shape),
        matrix=planned["path"],
        matrix_sent=planned["sent"],
        matrix_lost=planned["lost"],
        traced=traces["flow"].astype(np.int64),
        trace_paths=traces["path"],
        trace_complete=traces["complete"],
    )
    return telemetry_of(
        seen,
        config["telemetry"],
        config["monitors"],
        network["canary_bytes"],
        network["traceroute_packets"],
    )


def telemetry_of(
    seen: Observation, kinds: str, monitors: str, canary_bytes: int, traceroute_packets: int
) -> Telemetry:
    """What methods may know of what was seen; ``kinds`` as in the module's docstring."""
    chosen = kinds.split("+")
    return Telemetry(
        topology=seen.fabric,
        monitors=monitors,
        segments=SegmentCounts(
            seen.segments, seen.metered_sent.astype(np.int64), seen.metered_lost.astype(np.int64)
        ),
        flows=_flows(seen, chosen),
        probes=_probes(seen) if {"A1", "INT"} & set(chosen) else None,
        detector=Probes(seen.matrix, seen.matrix_sent, seen.matrix_lost),
        connections=Connections(
            src_tor=seen.flows.src_tor[seen.traced],
            dst_tor=seen.flows.dst_tor[seen.traced],
            lost=seen.flows.lost[seen.traced],
            paths=seen.trace_paths,
            complete=seen.trace_complete,
            traceroute_packets=traceroute_packets,
        ),
        canary_bytes=canary_bytes,
    )


def _probes(seen: Observation) -> Probes:
    """One row a path and host."""
    hosts = seen.probed_sent.shape[1]
    links = seen.bounces.links.reshape(len(seen.bounces), -1).repeat(hosts, axis=0)
    ptr = np.arange(len(links) + 1, dtype=np.int64) * links.shape[1]
    sent, lost = (n.reshape(-1).astype(np.int64) for n in (seen.probed_sent, seen.probed_lost))
    return Probes(Paths(ptr, links.reshape(-1)), sent, lost)


def _flows(seen: Observation, kinds: list[str]) -> Flows | None:
    """Flows by the most that is known of their paths; None if no kind tells of flows."""
    flows = seen.flows
    if "INT" in kinds:
        known = np.arange(len(flows), dtype=np.int64)
    elif "A2" in kinds:
        known = seen.traced[seen.trace_complete]
    elif "P" in kinds:
        known = np.zeros(0, np.int64)
    else:
        return None
    hidden = np.ones(len(flows), np.bool_)
    hidden[known] = False
    hidden = np.flatnonzero(hidden) if "P" in kinds else np.zeros(0, np.int64)
    n_tors = seen.fabric.n_tors
    pair = flows.src_tor[hidden].astype(np.int64) * n_tors + flows.dst_tor[hidden]
    pair, path_set = np.unique(pair, return_inverse=True)
    row = np.concatenate((hidden, known))
    path_set = np.concatenate((path_set, len(pair) + np.arange(len(known))))
    sets = PairSets(
        seen.fabric,
        (pair // n_tors).astype(np.int32),
        (pair % n_tors).astype(np.int32),
        PathSets.known(flows.paths.take(known)),
    )
    return Flows(sets, path_set.astype(np.int32), flows.sent[row], flows.lost[row])
