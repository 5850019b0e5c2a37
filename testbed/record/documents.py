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
    seed: Annotated[int, _field("of all that is drawn", ge=0, le=2**32 - 1)]
    epochs: Annotated[int, _field("epochs that were asked for", ge=1, le=EPOCHS)]
    monitors: Annotated[
        str,
        _field("which switches host meters, as `MONITORS` names them", pattern=f"^{PLACEMENT}$"),
    ]
    backend: Annotated[str, _field("what carried or simulated the packets")]
    telemetry: Annotated[
        str, _field("what methods know of probes and flows", pattern=rf"^{_KIND}(\+{_KIND})*$")
    ]


@with_config(_CLOSED)
class Conservation(TypedDict):
    """Packets sent and delivered, and packets lost, by cause."""

    sent: Annotated[int, _packets("sent by hosts, and ICMP messages of switches")]
    delivered: Annotated[int, _packets("delivered to hosts")]
    fault_drops: Annotated[int, _packets("lost by faults and noise")]
    queue_drops: Annotated[int, _packets("lost by full queues")]
    ttl_drops: Annotated[int, _packets("expired: 007's traces")]


@with_config(_CLOSED)
class Metered(TypedDict):
    """What Canary's meters counted of the traffic, in all epochs."""

    packets: Annotated[int, _packets("counted at the upstreams of all segments")]
    lost: Annotated[int, _packets("of them not at the downstreams")]
    segments: Annotated[int, _number("segments on which some were counted", "segments")]


@with_config(_CLOSED)
class Network(TypedDict):
    """What the network counted besides the tables."""

    fabric: Annotated[str, _field("the fabric's title")]
    epochs: Annotated[int, _field("epochs that were measured", ge=1, le=EPOCHS)]
    packet_hops: Annotated[int, _number("links crossed by all packets", "packet-hops")]
    conservation: Conservation
    other_drops: NotRequired[Annotated[int, _packets("lost in another way")]]
    misdelivered: NotRequired[Annotated[int, _packets("that came to another host")]]
    in_flight: NotRequired[Annotated[int, _packets("under way when the run ended")]]
    degraded: Annotated[list[str], _field("what makes the measurements incomplete, in words")]
    controller_late_ms: NotRequired[Annotated[int, _number("the controller's worst delay", "ms")]]
    slowdown: NotRequired[
        Annotated[float, _field("on real packets: how many times slower the run's clock was", ge=1)]
    ]
    collection_seconds: Annotated[
        list[Seconds], _field("on real packets: reading the meters, of each epoch", "s")
    ]
    unread: NotRequired[Annotated[_Cells, _field("(epoch, switch) whose meters were lost")]]
    events: NotRequired[Annotated[list[str], _field("what EVENTS did, in words")]]
    restarted: NotRequired[Annotated[_Cells, _field("(epoch, switch) that restarted: void")]]
    rules_installed: NotRequired[Annotated[int, _number("flows that were selected", "rules")]]
    rules_removed: NotRequired[Annotated[int, _number("of them retired", "rules")]]
    rules_refused: NotRequired[
        Annotated[int, _number("flows that were to be selected, but for a full table", "rules")]
    ]
    digests: NotRequired[Annotated[int, _number("reports of large flows", "digests")]]
    counters_read: NotRequired[
        Annotated[int, _number("counters of rules that the controller read", "counters")]
    ]
    control_bytes: NotRequired[
        Annotated[
            int,
            _number(
                "of digests, changes of rules and counters read, in `canary_bytes` too", "bytes"
            ),
        ]
    ]
    beta_reached: NotRequired[
        Annotated[
            int,
            _number(
                "without packets: segments, summed over epochs, that had the flows asked for",
                "segments",
            ),
        ]
    ]
    canary_bytes: Annotated[
        int,
        _number(
            "Canary's: meters that were read, digests, changes of rules and counters of rules that "
            "were read",
            "bytes",
        ),
    ]
    traceroute_packets: Annotated[int, _packets("that 007's traces cost")]
    icmp_messages: NotRequired[
        Annotated[
            int,
            _number(
                "answers to traces: those sent by switches, on real packets received by hosts",
                "messages",
            ),
        ]
    ]
    icmp_refused: NotRequired[
        Annotated[
            int,
            _number("answers held back by a switch's limit: not known on real packets", "messages"),
        ]
    ]
    flows_recorded: NotRequired[
        Annotated[float, _share("without packets: of the flows, those that have a record")]
    ]
    tcp: NotRequired[
        Annotated[dict[str, int | str] | None, _field("on real packets: what became of iperf3's")]
    ]


@with_config(_CLOSED)
class Capture(TypedDict):
    """What became of the frames of a capture, if one was replayed."""

    file: Annotated[str, _field("its name")]
    sha256: Annotated[str, _field("hash of the file, in hexadecimal", pattern=_SHA256)]
    fit: Annotated[bool, _field("whether its timing was stretched or squeezed to the run")]
    frames: Annotated[int, _number("frames read: replayed and refused", "frames")]
    replayed: Annotated[int, _number("those that became packets of the run", "frames")]
    refused: Annotated[dict[str, Index], _field("the others, by reason", "frames")]
    as_ipv4: Annotated[int, _number("IPv6 that was sent as IPv4", "frames")]
    shortened: Annotated[int, _number("replayed, but longer than a frame here may be", "frames")]
    share: Annotated[float, _share("of the file that was read")]
    seconds: Annotated[float, _number("from the first packet to the last that was read", "s")]
    timeless: NotRequired[
        Annotated[int, _number("read, but without a time: they took their neighbour's", "frames")]
    ]
    pauses: NotRequired[Annotated[int, _number("long silences: with fit, they are left out")]]
    pauses_s: NotRequired[Annotated[float, _number("how long those last together", "s")]]
    factor: NotRequired[
        Annotated[float, _number("by which the time between packets was stretched")]
    ]


@with_config(_CLOSED)
class Score(TypedDict):
    """The scores of a method's blamed links against the faulty ones."""

    precision: Annotated[float | None, _share("faulty ones of those blamed; null if none is")]
    recall: Annotated[
        float | None,
        _share(
            "blamed ones of those faulty and observed; 1 if none is faulty, null if none "
            "of them was observed"
        ),
    ]
    f1: Annotated[
        float | None,
        _share(
            "harmonic mean of both; where none is blamed 1 if none is faulty, else 0; null if "
            "nothing faulty was observed"
        ),
    ]
    accuracy: Annotated[
        float | None, _share("of all links observed, those judged rightly; null if none was")
    ]
    class_f1: NotRequired[
        Annotated[
            float | None,
            _share("F1 of classes of links that nothing tells apart: found if the truth is in it"),
        ]
    ]
    classes: NotRequired[Annotated[int, _number("classes of links that are blamed", "classes")]]
    true_positives: Annotated[int, _number("faulty and blamed", "links")]
    false_positives: Annotated[int, _number("blamed and healthy", "links")]
    false_negatives: Annotated[int, _number("faulty and not blamed", "links")]
    missed: Annotated[list[str], _field("names of the faulty ones not blamed")]
    wrong: Annotated[list[str], _field("names of the healthy ones blamed")]
    unobserved: NotRequired[
        Annotated[
            list[str],
            _field("names of the faulty ones that nothing observed, which are not missed"),
        ]
    ]


@with_config(_CLOSED)
class Scores(TypedDict):
    """The scores of a diagnosis on directed and on undirected links."""

    directed: Score
    undirected: Score


@with_config(_CLOSED)
class Method(TypedDict):
    """The scores and costs of one method in a run."""

    bench: NotRequired[
        Annotated[
            Literal["published", "project", "reference", "other"],
            _field("a paper's algorithm; of this project, variants too; of the user or a package"),
        ]
    ]
    native: Annotated[
        Literal["directed", "undirected"], _field("whether it tells directions apart")
    ]
    directed: Score
    undirected: Score
    lost: NotRequired[
        Annotated[Scores, _field("on real packets: against the links that really lost packets")]
    ]
    seconds: Annotated[Seconds, _field("of diagnosis", "s")]
    telemetry_bytes: Annotated[float, _number("telemetry that it needed", "bytes")]
    probe_packets: Annotated[int, _packets("that it sent")]
    measurements: NotRequired[Annotated[list[str], _field("those that its verdict rests on")]]
    fed: NotRequired[Annotated[float, _share("least share that these got of what they asked for")]]
    starved: NotRequired[Annotated[bool, _field("whether that is less than 0.9")]]
    ties: NotRequired[
        Annotated[
            list[list[str]],
            _field("links of each blamed class of several, which nothing it reads tells apart"),
        ]
    ]
    observed: NotRequired[
        Annotated[int, _number("directed links that what it reads has observed", "links")]
    ]
    remarks: NotRequired[Annotated[list[str], _field("what limits its verdict, in words")]]
    parameters: NotRequired[
        Annotated[str, _field("all it had, as in `METHODS`: `penalty=1.0,...`")]
    ]
    parameters_from: NotRequired[
        Annotated[str, _field("`default`, `paper` or a file; what was said one by one")]
    ]


@with_config(_CLOSED)
class Use(TypedDict):
    """How much of a measurement's budget was requested and how much was used."""

    asked: Annotated[int, _number("as many as were wanted")]
    got: Annotated[int, _number("as many as there were")]


@with_config(_CLOSED)
class Measured(TypedDict):
    """What a measurement took and gave: what does not apply to one is not there."""

    budgets: Annotated[dict[str, Use], _field("by budget, see `docs/reference/measurements.md`")]
    packets: NotRequired[Annotated[int, _packets("sent to measure, or counted by meters")]]
    links_unobserved: NotRequired[
        Annotated[int, _number("directed links without a packet", "links")]
    ]
    segments_unobserved: NotRequired[Annotated[int, _number("without a packet", "segments")]]
    installed: NotRequired[Annotated[int, _number("flows that got rules", "rules")]]
    removed: NotRequired[Annotated[int, _number("flows whose rules were removed", "rules")]]
    installed_later: NotRequired[
        Annotated[int, _number("of those installed, the ones after the first epoch", "rules")]
    ]
    unchanged: NotRequired[
        Annotated[
            Use,
            _field("segments, summed over the epochs after the first: without a new rule, of all"),
        ]
    ]
    digests: NotRequired[Annotated[int, _number("reports of large flows", "digests")]]
    counters_read: NotRequired[Annotated[int, _number("counters of rules read", "counters")]]
    control_bytes: NotRequired[
        Annotated[int, _number("of digests, changes of rules and counters read", "bytes")]
    ]
    remarks: NotRequired[
        Annotated[list[str], _field("targets that the settings cannot reach, in words")]
    ]


@with_config(_CLOSED)
class Summary(TypedDict):
    """The figures of all methods, and what is shown beside them."""

    scenario: Annotated[str, _field("as in `config.json`")]
    k: Annotated[int, _field("likewise", ge=4, le=128)]
    seed: Annotated[int, _field("likewise", ge=0, le=2**32 - 1)]
    topology: Annotated[str, _field("the fabric's title")]
    backend: Annotated[str, _field("as in `config.json`")]
    faulty_links: Annotated[list[str], _field("names of the directed links with a fault")]
    failed_devices: NotRequired[
        Annotated[
            dict[str, tuple[float, float]],
            _field(
                "by name of the switch: the least and the highest loss rate of its faulty links"
            ),
        ]
    ]
    wall_seconds: Annotated[Seconds, _field("the whole run", "s")]
    degraded: Annotated[list[str], _field("what makes the measurements incomplete, in words")]
    slowdown: NotRequired[Annotated[float, _field("as in `network.json`", ge=1)]]
    events: NotRequired[Annotated[list[str], _field("as in `network.json`")]]
    collection_seconds: Annotated[list[Seconds], _field("as in `network.json`", "s")]
    packet_hops: Annotated[int, _number("likewise", "packet-hops")]
    conservation: Conservation
    metered: NotRequired[Metered]
    epochs: NotRequired[Annotated[int, _field("as in `network.json`", ge=1, le=EPOCHS)]]
    missing: Annotated[list[str], _field("why some methods say nothing")]
    measured: NotRequired[Annotated[dict[str, Measured], _field("by measurement")]]
    methods: Annotated[dict[str, Method], _field("by method")]
    lost_links: NotRequired[
        Annotated[
            list[str],
            _field("on real packets: the directed links that lost some, by faults or not"),
        ]
    ]
    capture: NotRequired[Capture]


@with_config(_CLOSED)
class Entry(TypedDict):
    """The size and hash of a file."""

    bytes: Annotated[int, _number("its size", "bytes")]
    sha256: Annotated[str, _field("hash of its content, in hexadecimal", pattern=_SHA256)]


@with_config(_CLOSED)
class Manifest(TypedDict):
    """Every other file of a finished run, written last."""

    record_version: Annotated[int, _field("version of the record")]
    files: Annotated[dict[str, Entry], _field("by name")]
    replacing: NotRequired[
        Annotated[dict[str, Entry], _field("likewise, while `canary analyze` replaces files")]
    ]


Parameters = with_config(_CLOSED)(
    TypedDict(
        "Parameters",
        {
            "values": Annotated[str, _field("all that it has, as in `METHODS`: `penalty=1.0,...`")],
            "from": Annotated[
                str, _field("`default`, `paper` or a file; what was said one by one")
            ],
        },
    )
)


@with_config(_OPEN)
class Comparison(TypedDict):
    """Of a folder of `canary compare`: what decides its figures but for the seeds."""

    scenario: Annotated[str, _field("what was run")]
    methods: Annotated[list[str], _field("as named, in their order")]
    parameters: Annotated[dict[str, Parameters], _field("by method")]
    code_sha256: Annotated[str, _field("hash of all sources and tables", pattern=_SHA256)]
    scenario_sha256: NotRequired[Annotated[str, _field("of its file, if named", pattern=_SHA256)]]
    faults_sha256: NotRequired[Annotated[str, _field("likewise", pattern=_SHA256)]]
    traffic_sha256: NotRequired[Annotated[str, _field("likewise", pattern=_SHA256)]]
    methods_sha256: NotRequired[Annotated[dict[str, str], _field("of method files, by name")]]
    plugged_in: Annotated[dict[str, str], _field("methods of packages, with their versions")]


DOCUMENTS: Mapping[str, Any] = {
    "config.json": Config,
    "network.json": Network,
    "capture.json": Capture,
    "summary.json": Summary,
    "manifest.json": Manifest,
    "comparison.json": Comparison,
}
