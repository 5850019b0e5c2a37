# SPDX-License-Identifier: Apache-2.0
"""What a measurement is: its budgets and tables, and how it is made with packets and without.

A measurement is a class with a folder of its own. A run makes one object of each measurement that
its methods read (`testbed.measurements.registry`): `Measurement.start` installs it on a network,
and the returned `Running` follows the run to its end. ``BACKEND=flow`` has no packets; there
`Measurement.simulate` draws the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import FloatArray, IntArray, LongArray
from testbed.record.schema import Schema
from testbed.record.tables import Columns

if TYPE_CHECKING:
    from testbed.control.epochs import EpochClock
    from testbed.control.switch import SwitchControl
    from testbed.dataplane.adapted import IcmpLimit
    from testbed.fabric.clos import Fabric
    from testbed.fabric.ecmp import Ecmp
    from testbed.fabric.host_links import HostFabric
    from testbed.fabric.packet_fabric import PacketFabric
    from testbed.fabric.segments import Segments
    from testbed.network.flow import Carried, FlowRecords
    from testbed.network.network import Network, Statistics
    from testbed.network.sources import Source
    from testbed.traffic.flows import Traffic
    from testbed.traffic.generator import FlowProcess

ENOUGH = 0.9
"""The share of its request that a method needs; with less it is starved."""


@dataclass(frozen=True)
class Budget:
    """A limit of a measurement: how much it may send, store or install in a run.

    How much of each budget a run requested and used is in its ``summary.json``. A method that got
    less than `ENOUGH` of its request is starved: its scores show the budget and not the method.

    Attributes:
        name: Its name in ``summary.json``.
        does: ``sends``, ``stores`` or ``installs``; ``wants`` for a target that traffic may miss.
        what: The limited quantity, in the plural: ``traceroutes``.
        per: The unit that the limit is for: ``second and host``.
        option: The setting, or "" if the program fixes the limit.
        fixed: The limit if there is no setting.
        paper: The paper and the section that define it.
        feeds: The settings that give a starved method more.
        counted: The quantity that is counted as its use, if it differs from ``what``.
        per_rack: The most packets that the hosts of a rack send for each unit of the option; 0 for
            no such limit.
    """

    name: str
    does: Literal["sends", "stores", "installs", "wants"]
    what: str
    per: str
    option: str
    paper: str
    feeds: str = ""
    fixed: str = ""
    counted: str = ""
    per_rack: int = 0

    def probes_each(self, fabric: Fabric, rows: int, probes: int) -> int:
        """Return the number of probes that each of ``rows`` flows gets if all together send as many
        as NetBouncer's plan with PROBES = ``probes``, or what `per_rack` allows; at least 1."""
        climbs = fabric.climbs
        to_top = (fabric.tier[climbs.end] == fabric.tier.max()) & (climbs.links.length > 0)
        pairs = int(to_top.sum()) * fabric.hosts_per_tor
        if self.per_rack:
            pairs = min(pairs, fabric.n_tors * self.per_rack)
        return max(1, pairs * probes // max(rows, 1))


@dataclass(frozen=True)
class Limits:
    """What measurements may do, from the settings of a run.

    Attributes:
        alpha, beta, delta, eta: Thresholds of Canary's selection of flows (its table III).
        probes: Probes of each host over each path of NetBouncer's plan.
        answers_per_s: ICMP messages per second with which each switch may answer traceroutes.
        traces_per_s: Traceroutes per second that each host may send; 0 for as many as these answers
            allow.
    """

    alpha: int
    beta: int
    delta: int
    eta: int
    probes: int
    answers_per_s: float
    traces_per_s: float

    @property
    def icmp(self) -> IcmpLimit:
        """Return the limit on a switch's answers, as the switch program has it."""
        from testbed.dataplane.adapted import IcmpLimit

        return IcmpLimit.of(self.answers_per_s)


@dataclass(frozen=True)
class PacketRun:
    """A run with packets, as measurements see it before it begins.

    Attributes:
        network: The network, up and idle.
        controls: The controls of its switches, in the order of the topology, and of the adapters
            of hosts with meters behind them.
        segments: The path segments between switches with meters.
        ids: The 48-bit IDs of the switches, uint64[n_switches]; of hosts with meters behind them.
        monitors: The numbers of the switches and, behind them, of the hosts with meters, ascending.
        clock: When each of these begins an epoch.
        seed: The seed of the run.
        duration_s: Its length in seconds.
        traffic: The hosts' packets.
        data: The network's number of the traffic.
        limits: What measurements may do.
        seconds: Returns the time in seconds that work at the switches takes; always 0 in virtual
            time.
        idle: Whether hosts send nothing yet; frames are then fed later.
    """

    network: Network
    controls: Sequence[SwitchControl]
    segments: Segments
    ids: npt.NDArray[np.uint64]
    monitors: Sequence[int]
    clock: EpochClock
    seed: int
    duration_s: float
    traffic: Traffic
    data: int
    limits: Limits
    seconds: Callable[[], float]
    idle: bool = False

    @property
    def fabric(self) -> PacketFabric:
        """Return the fabric that the network emulates."""
        return self.network.topology

    def add_source(self, source: Source) -> Sending:
        """Let hosts send the frames of a source, unless they are idle; return what was added."""
        return Sending(self.network.add_source(source.silent() if self.idle else source), source)


@dataclass(frozen=True)
class Sending:
    """Frames that hosts send, and the network's number of their source."""

    number: int
    frames: Source


@dataclass(frozen=True)
class Counts:
    """What hosts counted and received in a run up to now, or since an epoch began.

    Attributes:
        first: The first epoch of the record, from 0; tables number its epochs from 0.
        sent, lost: The packets of each flow of each source, by the network's number of the source,
            int64[F] each. Of real TCP these are the transmissions and retransmissions.
        replies: The ICMP messages that hosts received, with the dtype `testbed.network.network`
            ``.REPLY``.
        statistics: The packet totals of the network.
        withheld: The answers to traceroutes that a switch's limit withheld; None where switches do
            not report them.
    """

    first: int
    sent: Mapping[int, LongArray]
    lost: Mapping[int, LongArray]
    replies: npt.NDArray[Any]
    statistics: Statistics
    withheld: int | None


Write = Callable[[str, Columns], None]
"""Writes a table of an epoch by its name; its file is ``NAME/epoch-NNN``."""


class Running:
    """A measurement in a run with packets. This one does nothing; a measurement overrides what it
    needs.

    Attributes:
        sending: The packets that it makes hosts send.
    """

    sending: Sequence[Sending] = ()

    def begin(self) -> None:
        """Prepare the switches for the first epoch; packets do not flow yet."""

    def changes(self, epoch: int) -> Sequence[tuple[int, Callable[[], None]]]:
        """Return what switches must do at the end of an epoch, counted from 0: times in ns, and an
        action for each."""
        del epoch
        return ()

    def poll(self, now_ns: int, retransmitted: npt.NDArray[np.int64] | None) -> None:
        """Do the periodic work, some 50 times an epoch.

        Args:
            now_ns: The time since the run's start in ns.
            retransmitted: Flows whose hosts' kernels have retransmitted since the last call; None
                without real TCP.
        """

    def restarted(self, switch: int) -> None:
        """Note that a switch restarted, so that its counters begin at 0 again."""

    def forget(self, epoch: int) -> None:
        """Forget what switches counted since the last epoch was read: ``epoch`` begins, after a
        time in which nothing was measured. Only a network at the prompt rests so."""

    def end_epoch(self, number: int, rerouted: Sequence[int], write: Write) -> Any:
        """Read what an epoch measured, whose packets have drained, and prepare the next ones.

        Args:
            number: The epoch, from 0.
            rerouted: Switches whose routes changed in it or before.
            write: Writes a table of the epoch.

        Returns:
            What the epoch measured; None if that is known only at the end of the run.
        """
        del number, rerouted, write

    def tables(self, counts: Counts) -> Mapping[str, Columns]:
        """Return the tables of the run from the epoch ``counts.first`` up to now, by name. Tables
        that several measurements write are joined (`testbed.measurements.tables`)."""
        del counts
        return {}

    def figures(self, counts: Counts) -> Mapping[str, Any]:
        """Return the fields of ``network.json`` that this measurement determines."""
        del counts
        return {}


@dataclass(frozen=True)
class SimulatedRun:
    """A run without packets, as measurements see it.

    Attributes:
        ecmp: The equal-cost paths of its fabric.
        segments: The path segments between switches with meters.
        loss: The loss rate of each link in each epoch, float64[1 or E, n_links]; those of hosts
            follow those of the fabric if there are ``hosts``.
        process: The random process by which flows arrive.
        epochs, epoch_s: The number of epochs, and their length in seconds.
        limits: What measurements may do.
        seed: The seed of the run.
        host: The sender of each recorded flow, int32[F].
        hosts: The fabric with its hosts, if a link of a host is faulty or has meters; else None.
        start_s, end_s: When each begins and ends to send, in seconds, float64[F].
        flows: The records of these flows.
        records: The largest mean number of flow records.
    """

    ecmp: Ecmp
    segments: Segments
    loss: FloatArray
    process: FlowProcess
    epochs: int
    epoch_s: float
    limits: Limits
    seed: int
    host: IntArray
    hosts: HostFabric | None
    start_s: FloatArray
    end_s: FloatArray
    flows: FlowRecords
    records: int

    @property
    def fabric(self) -> Fabric:
        """Return the fabric whose links lose packets."""
        return self.ecmp.fabric

    @property
    def duration_s(self) -> float:
        """Return the length of the run in seconds: number of epochs times their length."""
        return self.epochs * self.epoch_s

    def rng(self, part: int) -> np.random.Generator:
        """Return the random generator of one part of the run, by its number."""
        return random_part(self.seed, part)


def random_part(seed: int, part: int) -> np.random.Generator:
    """Return the random generator of one part of a run without packets, by its number."""
    return np.random.default_rng([seed, 0xF10, part])


@dataclass(frozen=True)
class Simulated:
    """What a measurement of a run without packets has found.

    Attributes:
        tables: Its tables, by name.
        figures: The fields of ``network.json`` that it determines.
        carried: Its own packets, and what the links lost of them; None if it sends none.
        sent: The number of these packets.
    """

    tables: Mapping[str, Columns]
    figures: Mapping[str, Any] = field(default_factory=dict)
    carried: Carried | None = None
    sent: int = 0


class Measurement:
    """A measurement of a run.

    Attributes:
        name: Its name, as MEASURE= has it.
        view: The name of what methods read of it, see `analysis.telemetry.views.registry`.
        help: What it is, in a few words.
        unseen: What would measure the links that it has not observed.
        budgets: Its limits.
        tables: The tables that it writes.
        on_monitors: Whether it needs the meters of monitor switches.
        always: Whether every run makes it, as it takes no packet, rule or time of a switch.
        program: BMv2's JSON of the Canary program with the control blocks of the measurement's
            ``measurement.p4``, as ``p4/Makefile`` makes it in ``build``, or one of
            `testbed.control.routings`; None if it has none. See `testbed.measurements.programs`.
    """

    name: ClassVar[str]
    view: ClassVar[str]
    help: ClassVar[str]
    unseen: ClassVar[str] = "a longer run"
    budgets: ClassVar[Sequence[Budget]] = ()
    tables: ClassVar[Sequence[Schema]] = ()
    on_monitors: ClassVar[bool] = False
    always: ClassVar[bool] = False
    program: ClassVar[Path | None] = None

    def need(self, fabric: Fabric) -> None:
        """Raise UserError (one line) if a fabric cannot have this measurement with packets."""
        del fabric

    def start(self, run: PacketRun) -> Running:
        """Install the measurement on a network that is up and idle, and return it."""
        del run
        return Running()

    def plan(self, fabric: Fabric) -> Any:
        """Return what `simulate` needs of the fabric; other work goes on meanwhile."""
        del fabric

    def simulate(self, run: SimulatedRun, plan: Any) -> Simulated | None:
        """Return what the measurement finds in a run without packets; None if it needs packets.

        Args:
            run: The run, whose flows have been sent.
            plan: What `plan` returned.
        """
        del run, plan
        return None

    def read(self, tables: Mapping[str, Columns]) -> Any:
        """Return what methods read of the measurement, unless `analysis.telemetry` has a view of
        its own for it: by default the tables of a record, by name."""
        return tables
