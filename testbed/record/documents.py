# SPDX-License-Identifier: Apache-2.0
"""The JSON files of a run: for each field its type, unit and bounds.

``config.json`` holds all settings of a run; declared here are those that a reader of its record
needs, `scenarios.experiment.settings` declares the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from testbed.fabric.monitors import PLACEMENT
from testbed.record.schema import COUNT_LIMIT

TELEMETRY = ("A1", "A2", "P", "INT")
"""What methods may know of probes and flows, in the words of Flock's section 6.2, joined by ``+``:
probes of known paths; traced flows that lost packets; all flows with their possible paths; all
flows with the path each took, and A1."""

EPOCHS = 1000
"""The most epochs of a run."""

_SHA256 = "^[0-9a-f]{64}$"
_KIND = f"({'|'.join(TELEMETRY)})"
_CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_OPEN = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


def _field(meaning: str, unit: str = "", **bounds: Any) -> Any:
    return Field(description=meaning, json_schema_extra={"unit": unit}, **bounds)


def _number(meaning: str, unit: str = "") -> Any:
    return _field(meaning, unit, ge=0, le=COUNT_LIMIT)


def _packets(meaning: str) -> Any:
    return _number(meaning, "packets")


def _share(meaning: str) -> Any:
    return _field(meaning, ge=0, le=1)


Index = Annotated[int, Field(ge=0, le=COUNT_LIMIT)]
_Cells = list[tuple[Index, Index]]
Seconds = Annotated[float, Field(ge=0, le=COUNT_LIMIT)]


@with_config(_OPEN)
class Config(TypedDict):
    """The resolved settings, and what made the run."""

    record_version: Annotated[int, _field("version of the record")]
    scenario: Annotated[str, _field("what was run")]
    k: Annotated[int, _field("the fat-tree's k", ge=4, le=128)]
    seed: Annotated[int, _field("the seed of all random draws", ge=0, le=2**32 - 1)]
    epochs: Annotated[int, _field("number of epochs requested", ge=1, le=EPOCHS)]
    monitors: Annotated[
        str,
        _field("which switches host meters, as `MONITORS` names them", pattern=f"^{PLACEMENT}$"),
    ]
    backend: Annotated[str, _field("the network that carried or simulated the packets")]
    measurements: NotRequired[
        Annotated[
            list[str],
            _field("what was measured; without it, what methods of the testbed read"),
        ]
    ]
    telemetry: Annotated[
        str,
        _field("the kinds of telemetry about probes and flows", pattern=rf"^{_KIND}(\+{_KIND})*$"),
    ]


@with_config(_CLOSED)
class Conservation(TypedDict):
    """Packets sent and delivered, and packets lost, by cause."""

    sent: Annotated[int, _packets("sent by hosts, and ICMP messages of switches")]
    delivered: Annotated[int, _packets("delivered to hosts")]
    fault_drops: Annotated[int, _packets("lost by faults and noise")]
    queue_drops: Annotated[int, _packets("lost by full queues")]
    ttl_drops: Annotated[int, _packets("expired TTL: the packets of 007's traceroutes")]
    other_drops: NotRequired[Annotated[int, _packets("no route, malformed or corrupted")]]
    emulator_drops: NotRequired[
        Annotated[int, _packets("counted where a real switch, host or cable lost them by itself")]
    ]
    in_flight: NotRequired[Annotated[int, _packets("under way when the run ended")]]
    unaccounted: NotRequired[
        Annotated[
            int,
            _field(
                "sent minus all the others: packets that no counter has",
                "packets",
                ge=-(10**15),
                le=10**15,
            ),
        ]
    ]


@with_config(_CLOSED)
class Metered(TypedDict):
    """What Canary's meters counted of the traffic, in all epochs."""

    packets: Annotated[int, _packets("counted at the upstreams of all segments")]
    lost: Annotated[int, _packets("counted upstream and not at the downstreams")]
    segments: Annotated[int, _number("segments on which packets were counted", "segments")]


@with_config(_CLOSED)
class Network(TypedDict):
    """What the network counted besides the tables."""

    fabric: Annotated[str, _field("the fabric's title")]
    hosts_per_tor: NotRequired[
        Annotated[
            int, _field("the hosts at each ToR: with packets, or if `host_links`", ge=1, le=253)
        ]
    ]
    sent_again: NotRequired[
        Annotated[
            int,
            _field("data packets that senders of a collective sent again, if they react", ge=0),
        ]
    ]
    host_links: NotRequired[
        Annotated[bool, _field("whether links of hosts have a truth and a verdict, too")]
    ]
    epochs: Annotated[int, _field("epochs that were measured", ge=1, le=EPOCHS)]
    packet_hops: Annotated[int, _number("links crossed, summed over all packets", "packet-hops")]
    conservation: Conservation
    other_drops: NotRequired[Annotated[int, _packets("lost for another reason")]]
    misdelivered: NotRequired[Annotated[int, _packets("delivered to a wrong host")]]
    in_flight: NotRequired[Annotated[int, _packets("under way when the run ended")]]
    degraded: Annotated[list[str], _field("what makes the measurements incomplete, in words")]
    controller_late_ms: NotRequired[
        Annotated[int, _number("longest delay of the controller", "ms")]
    ]
    slowdown: NotRequired[
        Annotated[float, _field("on real packets: how many times slower the run's clock was", ge=1)]
    ]
    collection_seconds: Annotated[
        list[Seconds], _field("on real packets: the time to read the meters, for each epoch", "s")
    ]
    unread: NotRequired[Annotated[_Cells, _field("(epoch, switch) whose meters could not be read")]]
    events: NotRequired[Annotated[list[str], _field("what EVENTS did, in words")]]
    restarted: NotRequired[
        Annotated[_Cells, _field("(epoch, switch) with void counts, as it restarted")]
    ]
    links_off: NotRequired[
        Annotated[list[Index], _field("directed links that were switched off at some time")]
    ]
    hosts_off: NotRequired[
        Annotated[list[Index], _field("hosts that were cut off at some time, as their link was")]
    ]
    rerouted: NotRequired[
        Annotated[_Cells, _field("(epoch, switch) in which flows may have moved to other paths")]
    ]
    flows_a_segment: NotRequired[
        Annotated[int, _number("the most flows with rules on a segment: meters tell no more apart")]
    ]
    rules_installed: NotRequired[Annotated[int, _number("flows that got rules", "rules")]]
    rules_removed: NotRequired[Annotated[int, _number("flows whose rules were removed", "rules")]]
    rules_refused: NotRequired[
        Annotated[int, _number("flows that got no rule because a table was full", "rules")]
    ]
    digests: NotRequired[Annotated[int, _number("reports of large flows", "digests")]]
    counters_read: NotRequired[
        Annotated[int, _number("counters of rules that the controller read", "counters")]
    ]
    control_bytes: NotRequired[
        Annotated[int, _number("digests, changes of rules and counters read", "bytes")]
    ]
    beta_reached: NotRequired[
        Annotated[
            int,
            _number(
                "without packets: segments, summed over epochs, that reached BETA",
                "segments",
            ),
        ]
    ]
    canary_bytes: Annotated[
        int,
        _number(
            "telemetry of Canary: meters read, digests, changes of rules and counters of rules "
            "read",
            "bytes",
        ),
    ]
    traceroute_packets: Annotated[int, _packets("sent by 007's traceroutes")]
    icmp_messages: NotRequired[
        Annotated[
            int,
            _number(
                "answers to traceroutes that switches sent; on real packets, that hosts received",
                "messages",
            ),
        ]
    ]
    icmp_refused: NotRequired[
        Annotated[
            int,
            _number("answers that a switch's limit withheld; unknown on real packets", "messages"),
        ]
    ]
    flows_recorded: NotRequired[
        Annotated[float, _share("without packets: the share of the flows that have a record")]
    ]
    tcp: NotRequired[
        Annotated[
            dict[str, int | str] | None,
            _field("on real packets: how the TCP transfers of iperf3 ended"),
        ]
    ]


@with_config(_CLOSED)
class Capture(TypedDict):
    """How many frames of a capture were replayed, changed or refused."""

    file: Annotated[str, _field("name of the file")]
    sha256: Annotated[str, _field("hash of the file, in hexadecimal", pattern=_SHA256)]
    fit: Annotated[bool, _field("whether its times were scaled to the length of the run")]
    frames: Annotated[int, _number("frames read, whether replayed or refused", "frames")]
    replayed: Annotated[int, _number("frames that became packets of the run", "frames")]
    refused: Annotated[
        dict[str, Index], _field("frames that were not replayed, by reason", "frames")
    ]
    as_ipv4: Annotated[int, _number("IPv6 frames that were sent as IPv4", "frames")]
    shortened: Annotated[int, _number("frames that were cut to the largest size", "frames")]
    share: Annotated[float, _share("the share of the file that was read")]
    seconds: Annotated[float, _number("from the first packet to the last that was read", "s")]
    timeless: NotRequired[
        Annotated[
            int,
            _number(
                "frames without a time, which got the time of the frame before or after", "frames"
            ),
        ]
    ]
    pauses: NotRequired[Annotated[int, _number("long pauses; with `:fit` they are cut out")]]
    pauses_s: NotRequired[Annotated[float, _number("the total length of these pauses", "s")]]
    factor: NotRequired[
        Annotated[float, _number("factor by which the time between packets was stretched")]
    ]


@with_config(_CLOSED)
class Score(TypedDict):
    """The scores of a method's blamed links against the faulty ones."""

    precision: Annotated[
        float | None,
        _share("the share of the blamed links that are faulty; null if none is blamed"),
    ]
    recall: Annotated[
        float | None,
        _share(
            "the share of the observed faulty links that are blamed; 1 if none is faulty, null "
            "if none of them was observed"
        ),
    ]
    f1: Annotated[
        float | None,
        _share(
            "harmonic mean of both; if none is blamed, 1 if none is faulty, else 0; null if no "
            "faulty link was observed"
        ),
    ]
    accuracy: Annotated[
        float | None,
        _share("the share of the observed links with a right verdict; null if none was observed"),
    ]
    class_f1: NotRequired[
        Annotated[
            float | None,
            _share("F1 of classes of indistinguishable links; found if one of them is faulty"),
        ]
    ]
    best_f1: NotRequired[
        Annotated[float | None, _share("F1 at the best cut of the method's own ranking")]
    ]
    classes: NotRequired[Annotated[int, _number("classes of links that are blamed", "classes")]]
    true_positives: Annotated[int, _number("faulty and blamed", "links")]
    false_positives: Annotated[int, _number("blamed and healthy", "links")]
    false_negatives: Annotated[int, _number("faulty and not blamed", "links")]
    missed: Annotated[list[str], _field("names of the faulty links that are not blamed")]
    wrong: Annotated[list[str], _field("names of the healthy links that are blamed")]
    unobserved: NotRequired[
        Annotated[
            list[str],
            _field("names of the faulty links that nothing observed; they do not count as missed"),
        ]
    ]


@with_config(_CLOSED)
class Scores(TypedDict):
    """The scores of a diagnosis on directed and on undirected links."""

    directed: Score
    undirected: Score


@with_config(_CLOSED)
class ByEpoch(TypedDict):
    """What a method blamed when it was asked after each epoch, from what that epoch measured."""

    faults: Annotated[int, _number("links with a fault that was active in an epoch", "links")]
    found: Annotated[int, _number("of these, blamed in an epoch in which they were", "links")]
    seconds_to_detect: Annotated[
        float | None,
        _field("mean time from a fault's begin to the end of the first such epoch", "s", ge=0),
    ]
    false_alarms: Annotated[
        float, _number("links blamed in an epoch without a fault, mean of all epochs", "links")
    ]


@with_config(_CLOSED)
class Method(TypedDict):
    """The scores and costs of one method in a run."""

    bench: NotRequired[
        Annotated[
            Literal["published", "project", "reference", "other"],
            _field("published algorithm, this project's method or variant, reference, or other"),
        ]
    ]
    own_name: NotRequired[
        Annotated[str, _field("what the class of a method file calls itself, if otherwise")]
    ]
    native: Annotated[Literal["directed", "undirected"], _field("the kind of link that it blames")]
    by_epoch: NotRequired[
        Annotated[ByEpoch, _field("with `DIAGNOSE=epoch`: how soon it found faults")]
    ]
    directed: Score
    undirected: Score
    lost: NotRequired[
        Annotated[Scores, _field("on real packets: against the links that really lost packets")]
    ]
    fabric: NotRequired[
        Annotated[
            Scores, _field("if links of hosts have a verdict: of those between switches alone")
        ]
    ]
    seconds: Annotated[Seconds, _field("processor time of the diagnosis", "s")]
    telemetry_bytes: Annotated[float, _number("size of the telemetry that it read", "bytes")]
    probe_packets: Annotated[int, _packets("sent for its measurements")]
    measurements: NotRequired[Annotated[list[str], _field("the measurements that it read")]]
    fed: NotRequired[
        Annotated[
            float, _share("the least share that one of these measurements got of its request")
        ]
    ]
    starved: NotRequired[Annotated[bool, _field("whether `fed` is less than 0.9")]]
    unranked: NotRequired[
        Annotated[bool, _field("true if all links have one score, so that they have no ranking")]
    ]
    ties: NotRequired[
        Annotated[
            list[list[str]],
            _field("links of each blamed class with several indistinguishable links"),
        ]
    ]
    observed: NotRequired[
        Annotated[int, _number("directed links that its measurements observed", "links")]
    ]
    remarks: NotRequired[Annotated[list[str], _field("what limits its verdict, in words")]]
    parameters: NotRequired[
        Annotated[str, _field("all parameters, as in `METHODS`: `penalty=1.0,...`")]
    ]
    parameters_from: NotRequired[
        Annotated[str, _field("where they came from: `default`, `paper`, a file, or set by name")]
    ]


@with_config(_CLOSED)
class Use(TypedDict):
    """How much of a measurement's budget was requested and how much was used."""

    asked: Annotated[int, _number("the number requested")]
    got: Annotated[int, _number("the number granted")]


@with_config(_CLOSED)
class Measured(TypedDict):
    """The costs and results of a measurement, as far as they apply to it."""

    budgets: Annotated[
        dict[str, Use], _field("use of each budget, see `docs/reference/measurements.md`")
    ]
    packets: NotRequired[Annotated[int, _packets("sent by the measurement, or counted by meters")]]
    links_unobserved: NotRequired[
        Annotated[int, _number("directed links that no packet of the measurement crossed", "links")]
    ]
    segments_unobserved: NotRequired[
        Annotated[int, _number("segments without a counted packet", "segments")]
    ]
    installed: NotRequired[Annotated[int, _number("flows that got rules", "rules")]]
    removed: NotRequired[Annotated[int, _number("flows whose rules were removed", "rules")]]
    installed_later: NotRequired[
        Annotated[int, _number("rules installed after the first epoch", "rules")]
    ]
    unchanged: NotRequired[
        Annotated[
            Use,
            _field(
                "pairs of a segment and a later epoch than the first: without a new rule, of all"
            ),
        ]
    ]
    digests: NotRequired[Annotated[int, _number("reports of large flows", "digests")]]
    counters_read: NotRequired[Annotated[int, _number("counters of rules read", "counters")]]
    control_bytes: NotRequired[
        Annotated[int, _number("digests, changes of rules and counters read", "bytes")]
    ]
    remarks: NotRequired[
        Annotated[list[str], _field("targets that the settings cannot reach, in words")]
    ]


@with_config(_CLOSED)
class Summary(TypedDict):
    """The figures of all methods, and the figures of the run that are shown beside them."""

    scenario: Annotated[str, _field("as in `config.json`")]
    k: Annotated[int, _field("as in `config.json`", ge=4, le=128)]
    seed: Annotated[int, _field("as in `config.json`", ge=0, le=2**32 - 1)]
    topology: Annotated[str, _field("the fabric's title")]
    backend: Annotated[str, _field("as in `config.json`")]
    links: NotRequired[Annotated[int, _number("directed links of the fabric", "links")]]
    faulty_links: Annotated[list[str], _field("names of the directed links with a fault")]
    rates: NotRequired[
        Annotated[dict[str, float], _field("the loss rate of each faulty link, as in `links`")]
    ]
    matched_links: NotRequired[
        Annotated[
            list[str], _field("the faulty links that lose packets only of the flows that match")
        ]
    ]
    failed_devices: NotRequired[
        Annotated[
            dict[str, tuple[float, float]],
            _field(
                "for each failed switch, the lowest and the highest loss rate of its faulty links"
            ),
        ]
    ]
    wall_seconds: Annotated[Seconds, _field("duration of the whole run", "s")]
    degraded: Annotated[list[str], _field("what makes the measurements incomplete, in words")]
    slowdown: NotRequired[Annotated[float, _field("as in `network.json`", ge=1)]]
    events: NotRequired[Annotated[list[str], _field("as in `network.json`")]]
    collection_seconds: Annotated[list[Seconds], _field("as in `network.json`", "s")]
    packet_hops: Annotated[int, _number("as in `network.json`", "packet-hops")]
    conservation: Conservation
    flow_sizes: NotRequired[
        Annotated[str, _field("sizes of the flows of `traffic` in words; a capture's in packets")]
    ]
    metered: NotRequired[Metered]
    epochs: NotRequired[Annotated[int, _field("as in `network.json`", ge=1, le=EPOCHS)]]
    missing: Annotated[list[str], _field("why some methods gave no verdict")]
    measured: NotRequired[Annotated[dict[str, Measured], _field("use of each measurement")]]
    methods: Annotated[dict[str, Method], _field("scores and costs of each method")]
    lost_links: NotRequired[
        Annotated[
            list[str],
            _field("on real packets: the directed links that lost packets, whatever the cause"),
        ]
    ]
    capture: NotRequired[Capture]


@with_config(_CLOSED)
class Entry(TypedDict):
    """The size and hash of a file."""

    bytes: Annotated[int, _number("size of the file", "bytes")]
    sha256: Annotated[str, _field("hash of its content, in hexadecimal", pattern=_SHA256)]


@with_config(_CLOSED)
class Manifest(TypedDict):
    """Every other file of a finished run, written last."""

    record_version: Annotated[int, _field("version of the record")]
    files: Annotated[dict[str, Entry], _field("the entry of each file")]
    replacing: NotRequired[
        Annotated[dict[str, Entry], _field("the new entries while `canary analyze` replaces files")]
    ]


Parameters = with_config(_CLOSED)(
    TypedDict(
        "Parameters",
        {
            "values": Annotated[str, _field("all parameters, as in `METHODS`: `penalty=1.0,...`")],
            "from": Annotated[
                str, _field("where they came from: `default`, `paper`, a file, or set by name")
            ],
        },
    )
)


@with_config(_OPEN)
class Comparison(TypedDict):
    """The settings and code that determine the figures of a comparison, besides its seeds."""

    scenario: Annotated[str, _field("what was run")]
    methods: Annotated[list[str], _field("names of the methods, in the given order")]
    parameters: Annotated[dict[str, Parameters], _field("parameters of each method")]
    code_sha256: Annotated[str, _field("hash of all sources and tables", pattern=_SHA256)]
    scenario_sha256: NotRequired[
        Annotated[str, _field("hash of the scenario file", pattern=_SHA256)]
    ]
    faults_sha256: NotRequired[Annotated[str, _field("hash of the fault file", pattern=_SHA256)]]
    traffic_sha256: NotRequired[Annotated[str, _field("hash of the traffic file", pattern=_SHA256)]]
    methods_sha256: NotRequired[Annotated[dict[str, str], _field("hash of each method file")]]
    plugged_in: Annotated[dict[str, str], _field("methods of other packages, with their versions")]


DOCUMENTS: Mapping[str, Any] = {
    "config.json": Config,
    "network.json": Network,
    "capture.json": Capture,
    "summary.json": Summary,
    "manifest.json": Manifest,
    "comparison.json": Comparison,
}
