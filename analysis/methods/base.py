# SPDX-License-Identifier: Apache-2.0
"""The interface of every localization method, its diagnosis, and what all methods share.

``NAME+CHANGE`` is a variant of a published method: the method with one change to its algorithm. A
method's class declares its changes beside the constructor. Each change sets one parameter of the
constructor, whose default is the published method. So ``flock`` is the algorithm of the paper, and
``flock+refine`` is ``flock`` with ``refine=True``; changes can be combined, as in
``flock+refine+conditional``.
"""

from __future__ import annotations

import functools
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from analysis.methods.classes import with_classes, with_unseen
from analysis.methods.constraints import checked
from analysis.methods.domain import Domain, World
from analysis.telemetry.identifiability import Identifiability, Observations
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.arrays import FloatArray, IntArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.names import nearest
from testbed.record.measurements import MEASUREMENTS, Measurement

Part = Literal["segments", "probes", "detector", "connections"]

RECORD_BYTES: Mapping[Part, int] = {"probes": 16, "detector": 12, "connections": 36}
"""Bytes of one record of each part of the telemetry, with 4 bytes a field. A probed path: the
prober and the bouncing switch, or, in deTector's static plan, the number of the path; probes sent
and lost. A connection: 13 bytes of five-tuple and 4 of retransmissions, rounded up to 20, and 4
for each of 4 traced hops."""


UNRANKED = "all links have the same score, so they have no ranking: give score or success"
"""The remark on a diagnosis whose method gives no scores."""
UNSEEN = "not observed"
STATES = ("healthy", "faulty", UNSEEN)
"""The states that a diagnosis may give a link. A link that no observation crossed is *not observed*
unless the method blames it, as it may blame all links of a failed device."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of a method: the links that it blames, and estimates for all links.

    Attributes:
        method: The method's name in `analysis.methods.registry.METHODS`.
        native: Whether the method tells the two directions of a link apart. An undirected diagnosis
            lists both directions.
        flagged: Ids of the blamed directed links, ascending, int32[]. Links that the telemetry
            cannot tell apart are all blamed or all not.
        success: Estimated success probability of each link, float64[n_links], nan = no estimate.
        score: Suspicion of each link, higher = more suspicious, float64[n_links]; ranks the links.
        seconds: Processor seconds of the inference, of all threads, without the compilation of
            kernels.
        stages: The links blamed up to each stage, int32[] each; empty for methods without stages.
        connection_cause: For 007, the link that caused each connection's drops, or -1 for noise;
            int32[C].
        devices: Ids of the blamed switches, ascending, int32[].
        remarks: Limits of this diagnosis, as sentences for the user.
        tells: Which links the method's telemetry observes and tells apart; None until
            `with_classes` has added it.
    """

    method: str
    native: Literal["directed", "undirected"]
    flagged: IntArray
    success: FloatArray
    score: FloatArray
    seconds: float
    stages: tuple[IntArray, ...] = ()
    connection_cause: IntArray | None = None
    devices: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))
    remarks: tuple[str, ...] = ()
    tells: Identifiability | None = None

    @property
    def equivalent(self) -> IntArray | None:
        """Return the class of each link, int32[n_links]: equal for links that no observation tells
        apart. None if ``tells`` is None."""
        return None if self.tells is None else self.tells.classes

    @property
    def ties(self) -> list[list[int]]:
        """Return the blamed classes that hold several links, as lists of ids; an undirected link is
        listed by the even id of its two directions."""
        if self.tells is None:
            return []
        both = self.native == "undirected"
        tells = self.tells.undirected if both else self.tells
        blamed = np.unique(self.flagged >> 1) if both else self.flagged
        blamed = blamed[tells.size[blamed] > 1]
        class_of = tells.classes[blamed]
        found = [blamed[class_of == each] for each in np.unique(class_of).tolist()]
        return [(each << both).tolist() for each in found if len(each) > 1]

    @property
    def state(self) -> list[str]:
        """Return the state of each directed link, one of `STATES`, in the order of the ids."""
        state = np.zeros(len(self.score), np.int8)
        if self.tells is not None:
            state[~self.tells.observed] = 2
        state[self.flagged] = 1
        return [STATES[each] for each in state.tolist()]


class Localizer(Protocol):
    """The interface that a method must have: parameters in the constructor, data in `localize`."""

    @property
    def name(self) -> str:
        """Return the method's name, as tables show it."""
        ...

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Return the links that the method blames.

        Raises:
            MissingTelemetry: A part that the method reads was not measured.
        """
        ...

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all measurement records that the method reads."""
        ...

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many packets were sent only for the method's measurements."""
        ...


class Method(ABC):
    """The base class of this project's methods.

    A subclass gives a name, the part of the telemetry that it reads, and `infer`. The base class
    derives the time and the costs, and checks that the part was measured. A subclass that reads
    several parts overrides `data`, `observations`, `measurements` and the costs.

    Attributes:
        base: The method's name without changes. A class may define `name` instead.
        paper: Paper and sections that describe the algorithm; None for methods of this project.
        domain: What the paper assumes; None if that is not known.
        reads: The part of the telemetry.
        changes: The changes to the published algorithm that the constructor's parameters turn on.

    All parameters of the constructor are keywords; their annotations declare constraints, which
    `analysis.methods.constraints` checks.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)

    base: ClassVar[str]
    paper: ClassVar[str | None] = None
    domain: ClassVar[Domain | None] = None
    reads: Part
    changes: ClassVar[Sequence[Change]] = ()

    @property
    def name(self) -> str:
        """Return ``NAME``, or ``NAME+CHANGE...`` if parameters change the published algorithm."""
        return "+".join([self.base, *(change.name for change in on(self))])

    @property
    def published(self) -> bool:
        """Return True if this is the algorithm of a paper, with no change turned on."""
        return self.paper is not None and not on(self)

    @abstractmethod
    def infer(self, data: Any, fabric: Fabric, /) -> Diagnosis:
        """Return the algorithm's diagnosis of ``fabric`` from what `data` returned; subclasses
        build it with `diagnosis`."""

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Return the diagnosis; links that the telemetry cannot tell apart are all blamed or all
        not. Raises MissingTelemetry if a part that the method reads was not measured."""
        data = self.data(telemetry)
        tells = Identifiability.of(telemetry.topology.n_links, self.observations(data))
        verdict = with_classes(self._infer(data, telemetry), tells, telemetry.topology)
        if tells.observed.all():
            return verdict
        return with_unseen(verdict, telemetry, self.measurements(telemetry))

    def decide(self, telemetry: Telemetry) -> Diagnosis:
        """Return the diagnosis of the algorithm alone, as its paper scores it: of several links
        that no observation tells apart, it may pick any. Raises as `localize`."""
        return self._infer(self.data(telemetry), telemetry)

    def _infer(self, data: Any, telemetry: Telemetry) -> Diagnosis:
        begin = time.process_time()
        diagnosis = self.infer(data, telemetry.topology)
        return replace(diagnosis, seconds=time.process_time() - begin)

    def data(self, telemetry: Telemetry) -> Any:
        """Return what the method reads. Raises MissingTelemetry if that was not measured."""
        return telemetry.need(self.reads, self.name)

    def observations(self, data: Any) -> Iterable[Observations]:
        """Return the observations in what `data` returned; they determine which links the method
        observes and tells apart."""
        watched = data.watched if isinstance(data, Connections) else None
        return (data,) if watched is None else (data, watched)

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Return the bytes of all measurement records that the method reads."""
        if self.reads == "segments":
            return telemetry.canary_bytes
        return RECORD_BYTES[self.reads] * telemetry.need(self.reads, self.name).records

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Return how many packets were sent only for the method's measurements: probes and
        traceroutes."""
        if self.reads == "segments":
            return 0
        if self.reads == "connections":
            return int(telemetry.need("connections", self.name).traceroute_packets)
        return int(telemetry.need(self.reads, self.name).sent.sum())

    def outside(self, telemetry: Telemetry, world: World) -> str:
        """Return a sentence on what of a run is outside of the method's domain; "" if nothing is,
        or if it has none."""
        if self.domain is None:
            return ""
        part = getattr(telemetry, getattr(self, "reads", ""), None)
        sent = getattr(part, "sent", np.zeros(0))
        sent = sent[sent > 0]
        return self.domain.outside(world, float(np.median(sent)) if len(sent) else None)

    def measurements(self, telemetry: Telemetry) -> Sequence[Measurement]:
        """Return the names of the measurements that the method reads, of
        `testbed.record.measurements`."""
        return (self.reads,)

    def diagnosis(
        self,
        fabric: Fabric,
        flagged: npt.ArrayLike,
        *,
        success: FloatArray | None = None,
        score: FloatArray | None = None,
        undirected: bool = False,
        stages: Sequence[npt.ArrayLike] = (),
        connection_cause: IntArray | None = None,
        devices: npt.ArrayLike = (),
        remarks: Sequence[str] = (),
    ) -> Diagnosis:
        """Return a `Diagnosis` from the results of an algorithm.

        The arguments are the attributes of `Diagnosis`. If ``undirected``, all ids and arrays are
        of undirected links (directed id >> 1) and are expanded to both directions. Without
        ``success`` no link has an estimate; without ``score`` links are ranked by their estimated
        loss.
        """
        links, both = (both_directions, 2) if undirected else (sorted_links, 1)
        if success is None:
            success = np.full(fabric.n_links // both, np.nan)
        if score is None:
            score = np.nan_to_num(1 - success)
        return Diagnosis(
            method=self.name,
            native="undirected" if undirected else "directed",
            flagged=links(flagged),
            success=success.repeat(both),
            score=score.repeat(both),
            seconds=0.0,
            stages=tuple(links(stage) for stage in stages),
            connection_cause=connection_cause,
            devices=sorted_links(devices),
            remarks=tuple(remarks),
        )


def decide(method: Localizer, telemetry: Telemetry) -> Diagnosis:
    """Return the diagnosis of a method's algorithm alone (`Method.decide`), or of `localize` if the
    method is not a `Method`.

    Raises:
        MissingTelemetry: A part that the method reads was not measured.
    """
    return (method.decide if isinstance(method, Method) else method.localize)(telemetry)


def diagnose(method: Localizer, telemetry: Telemetry) -> Diagnosis:
    """Return the diagnosis of any method, with the classes of links that its telemetry tells apart.

    For a method that does not work out these classes, they follow from the parts that its
    `measurements` names, or, if it has no such method, from all parts that were measured.

    Raises:
        MissingTelemetry: A part that the method reads was not measured.
    """
    diagnosis = method.localize(telemetry)
    if 0 < len(diagnosis.flagged) < len(diagnosis.score) and np.ptp(diagnosis.score) == 0:
        diagnosis = replace(diagnosis, remarks=(*diagnosis.remarks, UNRANKED))
    if diagnosis.tells is not None:
        return diagnosis
    found = getattr(method, "measurements", None)
    reads = tuple(MEASUREMENTS) if found is None else found(telemetry)
    parts = [getattr(telemetry, name) for name in reads]
    watched = [part.watched for part in parts if isinstance(part, Connections)]
    there = (part for part in [*parts, *watched] if part is not None)
    tells = Identifiability.of(telemetry.topology.n_links, there)
    whole = with_classes(diagnosis, tells, telemetry.topology)
    return with_unseen(whole, telemetry, reads)


def diagnose_elsewhere(method: Localizer, telemetry: Telemetry) -> Diagnosis:
    """Return the diagnosis of telemetry that was measured elsewhere, as `diagnose`.

    If it blames something, a remark says what of the fabric and the telemetry is outside of what
    the method's paper evaluates; how many links are faulty, and what healthy ones lose, is unknown.

    Raises:
        MissingTelemetry: A part that the method reads was not measured.
    """
    diagnosis = diagnose(method, telemetry)
    if not isinstance(method, Method) or not (len(diagnosis.flagged) or len(diagnosis.devices)):
        return diagnosis
    line = method.outside(telemetry, World(telemetry.topology.n_links, 0))
    return replace(diagnosis, remarks=(*diagnosis.remarks, line)) if line else diagnosis


def sorted_links(links: npt.ArrayLike) -> IntArray:
    """Return directed link ids in ascending order, each once: int32[]."""
    return np.unique(np.asarray(links, np.int64)).astype(np.int32)


def both_directions(edges: npt.ArrayLike) -> IntArray:
    """Return the ids of both directions of each undirected link (id >> 1), ascending: int32[]."""
    edge = np.unique(np.asarray(edges, np.int64))
    return np.stack((2 * edge, 2 * edge + 1), axis=1).reshape(-1).astype(np.int32)


@dataclass(frozen=True)
class Change:
    """One departure from a paper's algorithm.

    Attributes:
        name: Its name, written after the method's name and a ``+``.
        parameter: The constructor's parameter that turns it on.
        value: The parameter's value with the change on, unless the user gives another.
        section: The section of the paper that describes the changed step.
        printed: What the paper says there.
        ours: What the method does with the change on.
        why: The reason for the change.
        whose: Its origin: this project; the paper, which compares its method with this version; or
            the authors, whose published code does so.
    """

    name: str
    parameter: str
    value: Any
    section: str
    printed: str
    ours: str
    why: str
    whose: Literal["this project", "the paper", "the authors"] = "this project"


def changes_of(constructor: Callable[..., Any]) -> Sequence[Change]:
    """Return the changes that a method's class declares; none for methods of other packages."""
    return getattr(_class_of(constructor), "changes", ())


@functools.cache
def _parameters(constructor: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's constructor by name."""
    return inspect.signature(constructor).parameters


def off_values(constructor: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the value that the parameter of each change has in the published method, by parameter.

    Changes whose parameter a subclass's own constructor lacks are left out.
    """
    known = _parameters(_class_of(constructor))
    changes = changes_of(constructor)
    return {p: known[p].default for p in (each.parameter for each in changes) if p in known}


def on(method: object) -> tuple[Change, ...]:
    """Return the changes that are turned on in a method, in the order of their declaration.

    Of several changes of one parameter, it is the one whose value the parameter has.
    """
    off = off_values(type(method))
    found: dict[str, Change] = {}
    for change in changes_of(type(method)):
        p = change.parameter
        if p not in off or (value := getattr(method, p)) == off[p]:
            continue
        if p not in found or value == change.value:
            found[p] = change
    return tuple(found.values())


def split(name: str) -> tuple[str, list[str]]:
    """Split ``NAME+CHANGE+CHANGE``; return the method's name and the names of its changes."""
    base, *changes = (part.strip() for part in name.split("+"))
    return base, changes


def variant(constructor: Callable[..., Any], *names: str, **calibrated: Any) -> Callable[..., Any]:
    """Return the constructor of a variant.

    Args:
        constructor: The constructor of the published method.
        names: Names of the changes to turn on.
        calibrated: Other defaults of the variant, by parameter.

    Raises:
        UserError: There is no such change, or it is given twice (one line).
    """
    known = {change.name: change for change in changes_of(constructor)}
    values: dict[str, Any] = {}
    for name in names:
        if name not in known:
            there = nearest(name, known) if known else "it has none"
            raise UserError(f"there is no change +{name}: {there}")
        if known[name].parameter in values:
            raise UserError(f"+{name} is given twice, or with another change of the same step")
        values[known[name].parameter] = known[name].value
    return functools.partial(constructor, **values | calibrated)


def _class_of(constructor: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(constructor, functools.partial):
        constructor = constructor.func
    return constructor
