# SPDX-License-Identifier: Apache-2.0
"""The settings of a run: the meaning, default, bounds and unit of each, defined once.

The options of the command line (`scenarios.command.options`), the list of `make help-options` and
the table of settings in the documentation are made from here, or a test compares them with it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from testbed.control.routings import Routing
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.names import nearest, shortened
from testbed.fabric.topologies import is_described
from testbed.faults.plan import noise_range
from testbed.measurements.measurement import Measurement
from testbed.measurements.registry import ON_REQUEST, STANDARD, check_names
from testbed.network.kinds import NETWORKS, NetworkKind
from testbed.record.documents import EPOCHS, TELEMETRY
from testbed.record.messages import first_problem
from testbed.traffic.collectives import COLLECTIVES, collective
from testbed.traffic.demand import PACKETS_AN_EPOCH, flow_rates, locality_share
from testbed.traffic.generator import FAST_FLOWS

Backend = Literal["virtual", "flow", "softswitch", "bmv2"]
Injector = Literal["auto", "p4", "netem", "nft"]


class SettingsError(UserError):
    """A setting has a wrong value; the message is one line that says what to do."""


@dataclasses.dataclass(frozen=True)
class Extra:
    """The unit of a setting, and its default on backends that have their own."""

    unit: str = ""
    on: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _names(measurements: Sequence[Measurement]) -> str:
    """Return the names of measurements that only some runs make, as help has them."""
    return ", ".join(f"`{each.name}`" for each in measurements if not each.always)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Settings:
    """The settings of a run: everything that it depends on, apart from the code.

    Raises:
        pydantic.ValidationError: A value is out of its bounds or does not fit the others;
            `make_settings` turns this into one line.
    """

    k: Annotated[
        int, Field(ge=4, le=128, description="ports of a switch: the fat-tree's k, an even number")
    ] = 4
    faults: Annotated[
        str,
        Field(
            description="`10pct`, `6links`, `none`, `devices:1` (a switch whose links all lose "
            "at one rate, or which is dead), `device:agg0_1`, `devices:2@50pct` (half of their "
            "links), `device-links:1` (a rate for each link), `tor0_0->agg0_1:0.05` in quotes, "
            "`tor0_0-agg0_1:0.05` (both directions), `host-links:10pct` or `host-links:2` (links "
            "of hosts; they have names, too: `h0_0_0->tor0_0`), ranges such as "
            "`1..8links:0.001..0.01`, comma lists, a `.yaml` file"
        ),
    ] = "10pct"
    events: Annotated[
        str,
        Field(
            description="events and their second of the run: `none`, or `0.45 drain "
            "tor0_0->agg0_1; 0.7 "
            "undrain tor0_0->agg0_1; 0.5 reboot core0`: a link leaves its ECMP group and "
            "returns; a switch restarts empty. On real packets also `down`, `up` (a link or host) "
            "and `stop`, `start` (a switch or host)"
        ),
    ] = "none"
    seed: Annotated[
        int,
        Field(
            ge=0,
            le=2**32 - 1,
            description="seed of faults, rates, traffic, switch IDs and losses: the same seed "
            "gives the same run",
        ),
    ] = 1
    epochs: Annotated[
        int,
        Field(ge=1, le=EPOCHS, description="measurement epochs"),
        Extra(on={"softswitch": 8, "bmv2": 8}),
    ] = 5
    # 007's budgets are per second: in ten seconds it traces the connections that lose packets.
    # In two seconds of the default load a segment of a fat-tree with k=8 carries 2,200 packets,
    # enough for ALPHA where meters lose a quarter to collisions. Real switches are slower than
    # virtual time; with slower traffic, longer epochs hold as many packets.
    epoch_ms: Annotated[
        int,
        Field(ge=20, le=60_000, description="length of an epoch, in virtual or real time"),
        Extra("ms", {"softswitch": 7000, "bmv2": 16_000}),
    ] = 2000
    # With more than a tenth, less than half of an epoch is left to read meters and install rules.
    skew: Annotated[
        float,
        Field(
            ge=0,
            le=0.1,
            description="share of an epoch by which a switch changes its epoch early or late, at "
            "most, drawn anew each time: switches have no common clock (Canary, section III-G)",
        ),
    ] = 0.01
    traffic: Annotated[
        str,
        Field(
            description="`hadoop`, `websearch`, `storage`, `pareto` or `SIZES.txt` (flow "
            "sizes, each with the share of flows that are no larger; `:bytes` or `:packets=1460` "
            "says their unit), each with `:skewed`; `ring-allreduce`, `all-to-all` or "
            "`tree`, with `:ranks=16` and `:mb=16`, and `:go-back-n` or `:selective-repeat` for "
            "senders that react to losses; `FLOWS.csv` (`src,dst,bytes,start`); "
            "or `FILE.pcap[ng][.gz]`, with `:fit` to squeeze its timing into the run,"
            " `:inner` for the packets in tunnels"
        ),
    ] = "websearch"
    tcp: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="on real links: share of the larger TCP flows that iperf3 carries "
            "through the hosts' kernels; other traffic is open loop",
        ),
        Extra(on={"softswitch": 0.1, "bmv2": 0.1}),
    ] = 0.0
    load: Annotated[
        float,
        Field(
            ge=0.001,
            le=1,
            description="share of the line rate at which hosts send: "
            + ", ".join(f"{n.line_rate_bps / 1e6:g} Mb/s on `{n.name}`" for n in NETWORKS.values())
            + "; `auto` is as if not given: on real packets no more than the machine carries",
        ),
        Extra(on={"softswitch": 0.6, "bmv2": 0.6}),
    ] = 0.06
    flow_rate: Annotated[
        str,
        Field(
            coerce_numbers_to_str=True,
            description="rate of a flow as a share of the line rate: `0.001`, or `0.001..0.004` to "
            f"draw one for each; `auto`: {PACKETS_AN_EPOCH} packets an epoch, and with a list of "
            f"flows `{FAST_FLOWS[0]:g}..{FAST_FLOWS[1]:g}`",
        ),
    ] = "auto"
    locality: Annotated[
        str,
        Field(
            coerce_numbers_to_str=True,
            description="share of the traffic between racks that stays in its pod; `uniform`: each "
            "other rack gets as much, so 1/7 stays with `K=4` and 3/31 with `K=8`",
        ),
    ] = "uniform"
    routing: Annotated[
        Routing,
        Field(
            description="how switches choose among equal-cost uplinks: `ecmp`, one for each flow; "
            "`flowlet`, one for each burst of it; `spray`, one for each packet, in turn; or "
            "`adaptive`, for each packet the one with the shorter queue"
        ),
    ] = "ecmp"
    monitors: Annotated[
        str,
        Field(
            description="which switches host meters: all ToRs (`tor`) and, joined by `+`, tiers "
            "(`agg`, `core`), shares of a tier that the seed draws (`50%core`), single switches "
            "(`core0`) or all hosts (`host`, with `BACKEND=virtual` and `flow`)"
        ),
    ] = "tor+core"
    alpha: Annotated[
        int, Field(ge=0, le=10**9, description="target of packets per segment and epoch")
    ] = 1000
    beta: Annotated[
        int,
        Field(
            ge=0,
            le=4096,
            description="target of flows per segment and epoch, of which meters tell apart 28 with "
            "`K=8` and 7 with `K=16`: no more are asked for",
        ),
    ] = 20
    delta: Annotated[
        int,
        Field(
            ge=1,
            le=4096,
            description="flows selected together (Canary, section III-D)",
        ),
    ] = 20
    eta: Annotated[
        int,
        Field(ge=0, le=2**31, description="a flow with more packets in HashPipe is large"),
    ] = 16
    probes: Annotated[
        int,
        Field(
            ge=1,
            le=100_000,
            description="probes that each host sends over each path of NetBouncer's plan in a run "
            "(its section 6.1); deTector's plan has as many in all, at most 512 times PROBES a "
            "rack",
        ),
    ] = 100
    icmp_per_s: Annotated[
        float,
        Field(
            ge=0,
            le=10_000,
            description="ICMP messages a second that a switch answers traceroutes with (007's "
            "T_max, section 4.1); 0: "
            + ", ".join(f"{n.answers_per_port:g} on `{n.name}`" for n in NETWORKS.values())
            + " for each of its ports",
        ),
    ] = 0.0
    traces_per_s: Annotated[
        float,
        Field(
            ge=0,
            le=10_000,
            description="traceroutes a second that a host sends (007's C_t); 0: 0.4 of what its "
            "theorem 1 allows for `ICMP_PER_S`, as switches on the way down answer, too",
        ),
    ] = 0.0
    noise: Annotated[
        str,
        Field(
            coerce_numbers_to_str=True,
            description="loss rate of healthy links; `0..0.0001`: drawn uniformly for each (Flock, "
            "section 6.3): without noise any lost packet proves a fault",
        ),
    ] = "0..0.0001"
    measure: Annotated[
        str,
        Field(
            description="measurements to make besides those that `METHODS` read, for methods of "
            f"later: {_names(STANDARD)} (`all` of these), {_names(ON_REQUEST)} or those of "
            "installed packages, joined by `+`; or `none`"
        ),
    ] = "none"
    diagnose: Annotated[
        str,
        Field(
            description="when methods are asked: at the `end` of the run, or also after each "
            "`epoch`, for what it measured alone, or of the last N, `epoch:N`: time to detect, and "
            "false alarms an epoch"
        ),
    ] = "end"
    backend: Annotated[
        Backend,
        Field(
            description="`virtual`: in process, virtual time. `flow`: without packets, for large "
            "fabrics. `softswitch`, `bmv2`: real packets under Mininet. `auto` is `virtual`"
        ),
    ] = "virtual"
    threads: Annotated[
        int,
        Field(
            ge=0,
            le=1024,
            description="threads of the virtual network, which do not change the run; 0: one per "
            "core, if the fabric has enough work",
        ),
    ] = 0
    injector: Annotated[
        Injector,
        Field(description="`p4`: the switches' fault tables; on real links also `nft` and `netem`"),
    ] = "auto"
    topology: Annotated[
        str,
        Field(
            description="`fat-tree`; `two-switch`: two linked switches with a host each; "
            "`leaf-spine:LEAVES:SPINES[:OVERSUB]`; `clos:PODS:TORS:AGGS:CORES[:OVERSUB]`; each "
            "with `:irregular=5pct` to leave out links; or a file of "
            "a fabric: a table of links, containerlab, Batfish, networkx, GraphML, GML, Graphviz, "
            "htsim, a list of edges"
        ),
    ] = "fat-tree"
    tier0: Annotated[
        str,
        Field(
            description="with a file as `TOPOLOGY`: a pattern for the names of its ToRs, such as "
            "`leaf*`; `auto`: by tiers and roles in the file, names, or the hosts at them"
        ),
    ] = "auto"
    hosts: Annotated[
        int,
        Field(
            ge=0,
            le=250,
            description="with a file as `TOPOLOGY`: hosts at each ToR; 0: as many as the file has "
            "at one, or 2",
        ),
    ] = 0
    rate: Annotated[
        float,
        Field(
            ge=0,
            le=400_000,
            description="rate of every link with `BACKEND=virtual`, beyond which packets wait and "
            "are dropped; 0: as the scenario says, else infinitely fast",
        ),
        Extra(unit="Mb/s"),
    ] = 0.0
    queue: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="packets of 1,514 bytes that wait before a link of that rate; 0: as the "
            "scenario says, else 256",
        ),
    ] = 0
    delay: Annotated[
        float,
        Field(
            ge=0,
            le=100_000,
            description="time that a bit takes over a link with `BACKEND=virtual`; 0: as the "
            "scenario says, else 5 µs",
        ),
        Extra(unit="µs"),
    ] = 0.0
    telemetry: Annotated[
        str,
        Field(
            description="with `BACKEND=flow`: kinds of telemetry from probes and flows, of "
            f"{', '.join(f'`{kind}`' for kind in TELEMETRY)}, joined by `+`"
        ),
        Extra(on={"flow": "A1+P"}),
    ] = "A1+A2+P"

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        """Check that the settings fit each other; `scenarios.experiment.inputs.layout_of` checks
        those that need the fabric."""
        check_names(self.measure)  # raises an error, as do the calls below
        noise_range(self.noise)
        self.window  # noqa: B018
        self.flow_rates  # noqa: B018
        locality_share(self.locality)
        wanted = collective(self.traffic)
        if wanted is not None and wanted.recovery is not None:
            self.network.need_virtual_time(f"TRAFFIC={self.traffic}", wanted.recovery)
        if self.injector not in self.network.injectors:
            needs = "packets" if self.injector == "p4" else "real links"
            raise SettingsError(
                f"INJECTOR={self.injector} needs {needs}: leave it out, or another BACKEND"
            )
        for name, needs in self.network.lacks.items():
            value, default = (getattr(each, name) for each in (self, Settings))
            value = f"{value:g}" if isinstance(value, float) else str(value).strip()
            if value.lower() not in (str(default).lower(), "0"):
                raise SettingsError(
                    f"{name.upper()}={shortened(value)} needs {needs}: leave it out, or another "
                    "BACKEND"
                )
        kinds = self.telemetry.split("+")
        if len(set(kinds)) < len(kinds) or not set(kinds) <= set(TELEMETRY):
            raise SettingsError(
                f"TELEMETRY={self.telemetry} is unknown: use {', '.join(TELEMETRY)}, joined by +"
            )
        return self

    @property
    def window(self) -> int:
        """Return the number of last epochs that methods are asked about after each, from DIAGNOSE;
        0 if they are asked at the end only.

        Raises:
            SettingsError: The setting is wrong (one line).
        """
        found = re.fullmatch("end|epoch(?::([1-9][0-9]{0,3}))?", self.diagnose)
        if found is None:
            raise SettingsError(
                f"DIAGNOSE={shortened(self.diagnose)} is unknown: use end, epoch, or epoch:N for "
                "the last N epochs"
            )
        return 0 if self.diagnose == "end" else int(found[1] or 1)

    @property
    def network(self) -> NetworkKind:
        """Return what a run can have on the network of its backend."""
        return NETWORKS[self.backend]

    def answers_per_s(self, fabric: Fabric) -> float:
        """Return the ICMP messages a second that a switch of a fabric answers traceroutes with."""
        return self.icmp_per_s or self.network.answers_per_port * fabric.n_ports

    @property
    def flow_rates(self) -> tuple[float, float]:
        """Return the lowest and the highest rate of a flow, as shares of the line rate."""
        rate = self.network.line_rate_bps
        return flow_rates(self.flow_rate, self.traffic, self.epoch_ms / 1000, rate)

    @property
    def ignored(self) -> dict[str, str]:
        """Return the settings that this run ignores, each with its reason: ``with
        TOPOLOGY=...``."""
        found = {}
        if self.topology.partition(":")[0] != "fat-tree":
            found["k"] = f"with TOPOLOGY={self.topology}"
        if is_described(self.topology):
            for name in ("tier0", "hosts"):
                found[name] = "without a file as TOPOLOGY"
        if ".cap" in self.traffic.lower() or ".pcap" in self.traffic.lower():
            for name in ("load", "flow_rate", "locality"):
                found[name] = f"with a capture, TRAFFIC={self.traffic}"
        if self.traffic.partition(":")[0] in COLLECTIVES:
            for name in ("flow_rate", "locality"):
                found[name] = f"with a collective, TRAFFIC={self.traffic}"
        if self.traffic.lower().endswith(".csv"):
            for name in ("load", "locality"):
                found[name] = f"with a list of flows, TRAFFIC={self.traffic}"
        for name in self.network.ignores:
            found[name] = f"with BACKEND={self.backend}"
        if not (self.alpha or self.beta):  # no flow is ever selected
            found["delta"] = "with ALPHA=0 and BETA=0"
        return found

    @property
    def epoch_ns(self) -> int:
        """Return the length of an epoch in nanoseconds, from EPOCH_MS."""
        return self.epoch_ms * 1_000_000

    @property
    def duration_s(self) -> float:
        """Return the length of the run in seconds: number of epochs times their length."""
        return self.epochs * self.epoch_ms / 1000

    def as_dict(self) -> dict[str, Any]:
        """Return all settings by name, as ``config.json`` has them."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The description of a setting, for options, help and documentation.

    Attributes:
        name: The name of the field in `Settings`.
        kind: The type: int, float or str; str for a setting with choices.
        default: The default on backends that are not in ``on``.
        on: The defaults of the backends that have their own.
        low, high: The bounds; None if there are none.
        choices: The allowed values if there are few; else empty.
        unit: The unit of the value and the bounds.
        meaning: The meaning, as a line of Markdown.
    """

    name: str
    kind: type
    default: Any
    on: Mapping[str, Any]
    low: float | None
    high: float | None
    choices: Sequence[str]
    unit: str
    meaning: str


def described() -> list[Setting]:
    """Return the description of each setting, in the order of the fields."""
    return [_describe(name, info) for name, info in cast(Any, Settings).__pydantic_fields__.items()]


def _describe(name: str, info: FieldInfo) -> Setting:
    """Return the description of a setting from its field in `Settings`."""
    low = next((note.ge for note in info.metadata if hasattr(note, "ge")), None)
    high = next((note.le for note in info.metadata if hasattr(note, "le")), None)
    extra = next((note for note in info.metadata if isinstance(note, Extra)), Extra())
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    return Setting(
        name=name,
        kind=type(info.default),
        default=info.default,
        on=extra.on,
        low=low,
        high=high,
        choices=choices,
        unit=extra.unit,
        meaning=info.description or "",
    )


def make_settings(
    given: Mapping[str, Any], base: Mapping[str, Any] = MappingProxyType({})
) -> Settings:
    """Return the settings of a run: a value of ``given``, else of ``base``, else the backend's
    default.

    Args:
        given: Settings that the user asked for; one that the run would ignore is an error.
        base: Other settings: the scenario's, or those of an earlier run.

    Raises:
        SettingsError: A value is wrong, there is no such setting, or the run would ignore it.
    """
    stands = dict(base) | dict(given)
    backend = stands.get("backend", Settings.backend)
    defaults = {s.name: s.on[backend] for s in described() if backend in s.on}
    try:
        settings = Settings(**(defaults | stands))
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from None
    for name, reason in settings.ignored.items():
        if name in given:
            raise SettingsError(
                f"{name.upper()}={given[name]} has no effect {reason}: leave it out"
            )
    return settings


def _one_line(error: ValidationError) -> str:
    """Return an error of pydantic as one line that says what to do."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "value_error":  # raised by the checks above
        return first_problem(error)[1]
    name = str(first["loc"][0])
    known = {setting.name: setting for setting in described()}
    setting = known.get(name)
    if setting is None:
        return f"{name.upper()} is not a setting: {nearest(name, [each.upper() for each in known])}"
    assignment = f"{name.upper()}={first['input']}"
    if setting.choices:
        auto = ", or auto" if name == "backend" else ""
        return f"{assignment} is unknown: use {', '.join(setting.choices)}{auto}"
    if first["type"] in ("greater_than_equal", "less_than_equal"):
        return f"{assignment} is out of range: use {setting.low} to {setting.high}"
    return f"{assignment}: {first_problem(error)[1]}"
