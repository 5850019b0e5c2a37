"""The one face of every localization method, its verdict, and what all methods share.

``NAME+CHANGE`` is a variant of a published method, with a change of this project on. A method's
class declares each of its changes beside the constructor, and each is one parameter of it, which is
off in the published method. ``flock`` is therefore the algorithm of the paper, and ``flock+refine``
is that with ``refine=True``; several may be combined, as in ``flock+refine+conditional``.
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from analysis.methods.constraints import checked
from analysis.telemetry.identifiability import Identifiability, Observations
from analysis.telemetry.silence import silent_links
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.arrays import FloatArray, IntArray
from testbed.compiled import timed
from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.fabric.names import nearest, some_of
from testbed.record.measurements import MEASUREMENTS, Measurement

Part = Literal["segments", "probes", "detector", "connections"]

RECORD_BYTES: Mapping[Part, int] = {"probes": 16, "detector": 12, "connections": 36}
"""Of one record of a part of the telemetry. A probed path: prober and bouncing switch, or in
deTector's static plan its number; probes sent and lost (4 bytes each; the paths are the plan's). A
connection: five-tuple 13 + retransmissions 4, rounded up to 20, and 4 for each of 4 traced hops."""


UNSEEN = "not observed"
STATES = ("healthy", "faulty", UNSEEN)
"""What a method may say of a link. Of one that no observation crossed it says nothing, unless it
blames the link, as one of a failed device."""


@dataclass(frozen=True)
class Diagnosis:
    """Which links a method blames, and what it thinks of the others.

    Attributes:
        method: The method's name in `analysis.methods.registry.METHODS`.
        native: Whether the method tells the two directions of a link apart. An undirected verdict
            lists both.
        flagged: Blamed directed link ids, ascending, int32[]. Of links that the telemetry cannot
            tell apart all are blamed or none.
        success: Estimated success probability of each link, float64[n_links], nan = no estimate.
        score: Ranking of each link, higher = more suspicious, float64[n_links].
        seconds: Wall-clock time of the inference, less that of compiling.
        stages: The links blamed after each stage (cumulative), of a method that has stages.
        connection_cause: 007's verdict on each connection: a link id, or -1 for noise; int32[C].
        devices: Blamed switches, ascending, int32[].
        remarks: What limits the verdict, in words for its user.
        tells: Which links the telemetry that the method was given observed and tells apart; None
            before that was worked out, see `with_classes`.
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
        """The class of each link, int32[n_links]: equal where nothing tells two links apart."""
        return None if self.tells is None else self.tells.classes

    @property
    def ties(self) -> list[list[int]]:
        """The blamed classes of several links, as ids: of undirected links their even one."""
        if self.tells is None:
            return []
        both = self.native == "undirected"
        tells = self.tells.undirected if both else self.tells
        blamed = np.unique(self.flagged >> 1) if both else self.flagged
        blamed = blamed[tells.size[blamed] > 1]
        of = tells.classes[blamed]
        return [(blamed[of == each] << both).tolist() for each in np.unique(of).tolist()]

    @property
    def state(self) -> list[str]:
        """What the method says of each link: one of `STATES`."""
        state = np.zeros(len(self.score), np.int8)
        if self.tells is not None:
            state[~self.tells.observed] = 2
        state[self.flagged] = 1
        return [STATES[each] for each in state.tolist()]


class Localizer(Protocol):
    """What a method must have to be run: parameters in the constructor, data in one method."""

    @property
    def name(self) -> str: ...

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Blame links. Raises MissingTelemetry when a part the method reads was not measured."""
        ...

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Bytes of measurement records the method had to collect."""
        ...

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Packets sent only to measure."""
        ...


class Method(ABC):
    """A method that reads one part of the telemetry: a name, what it reads, and `infer`.

    Time, costs and the check that the part was measured follow from these. A method that reads
    several parts overrides `data` and the costs.

    Attributes:
        base: The name that it has without changes. A class may set `name` instead.
        paper: Where the algorithm is published; None for methods of this project.
        reads: The part.
        changes: What parameters of the constructor change in the published algorithm.

    The constructor's parameters are keywords, and their constraints are declared, see
    `analysis.methods.constraints`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)

    base: ClassVar[str]
    paper: ClassVar[str | None] = None
    reads: Part
    changes: ClassVar[Sequence[Change]] = ()

    @property
    def name(self) -> str:
        """``NAME``, or ``NAME+CHANGE...`` where parameters change the published algorithm."""
        return "+".join([self.base, *(change.name for change in on(self))])

    @property
    def published(self) -> bool:
        """Whether this is the algorithm of a paper, step by step."""
        return self.paper is not None and not on(self)

    @abstractmethod
    def infer(self, data: Any, fabric: Fabric, /) -> Diagnosis:
        """Blame links of ``fabric`` from what `data` returned; see `diagnosis`."""

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Blame classes of links. Raises MissingTelemetry when a part the method reads was not
        measured."""
        data = self.data(telemetry)
        tells = Identifiability.of(telemetry.topology.n_links, self.observations(data))
        verdict = with_classes(self._infer(data, telemetry), tells)
        return with_unseen(verdict, telemetry, self.measurements(telemetry))

    def decide(self, telemetry: Telemetry) -> Diagnosis:
        """Blame the links that the algorithm alone picks, as its paper scores it: of links that
        nothing tells apart it may be any. Raises as `localize`."""
        return self._infer(self.data(telemetry), telemetry)

    def _infer(self, data: Any, telemetry: Telemetry) -> Diagnosis:
        diagnosis, seconds = timed(self.infer, data, telemetry.topology)
        return replace(diagnosis, seconds=seconds)

    def data(self, telemetry: Telemetry) -> Any:
        """What the method reads. Raises MissingTelemetry where that was not measured."""
        return telemetry.need(self.reads, self.name)

    def observations(self, data: Any) -> Iterable[Observations]:
        """The observations in what `data` returned, from which follows what they can tell."""
        watched = data.watched if isinstance(data, Connections) else None
        return (data,) if watched is None else (data, watched)

    def telemetry_bytes(self, telemetry: Telemetry) -> int:
        """Bytes of measurement records the method had to collect."""
        if self.reads == "segments":
            return telemetry.canary_bytes
        return RECORD_BYTES[self.reads] * telemetry.need(self.reads, self.name).records

    def probe_packets(self, telemetry: Telemetry) -> int:
        """Packets sent only to measure."""
        if self.reads == "segments":
            return 0
        if self.reads == "connections":
            return int(telemetry.need("connections", self.name).traceroute_packets)
        return int(telemetry.need(self.reads, self.name).sent.sum())

    def measurements(self, telemetry: Telemetry) -> Sequence[Measurement]:
        """The measurements that the verdict rests on, of `testbed.record.measurements`."""
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
        """The verdict, see `Diagnosis`. Of an ``undirected`` one all arrays are over undirected
        links; without ``success`` there is no estimate, without ``score`` the loss ranks."""
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
    """Blame what a method's algorithm alone picks (`Method.decide`), or what it says if it is of
    another kind. Raises MissingTelemetry."""
    return (method.decide if isinstance(method, Method) else method.localize)(telemetry)


def diagnose(method: Localizer, telemetry: Telemetry) -> Diagnosis:
    """Blame links with any method. One that does not say which links its telemetry tells apart is
    taken for a reader of its `measurements`, or of all there is.

    Raises:
        MissingTelemetry: A part that the method reads was not measured.
    """
    diagnosis = method.localize(telemetry)
    if diagnosis.tells is not None:
        return diagnosis
    found = getattr(method, "measurements", None)
    reads = tuple(MEASUREMENTS) if found is None else found(telemetry)
    parts = [getattr(telemetry, name) for name in reads]
    watched = [part.watched for part in parts if isinstance(part, Connections)]
    there = (part for part in [*parts, *watched] if part is not None)
    tells = Identifiability.of(telemetry.topology.n_links, there)
    return with_unseen(with_classes(diagnosis, tells), telemetry, reads)


def with_classes(diagnosis: Diagnosis, tells: Identifiability) -> Diagnosis:
    """Return a verdict of classes: if one link of a class is blamed all are, and all have the
    highest score of one of them, and the lowest success."""
    classes = (tells.undirected if diagnosis.native == "undirected" else tells).classes
    if diagnosis.native == "undirected":
        classes = (2 * classes).repeat(2)
    if (classes == np.arange(len(classes))).all():
        return replace(diagnosis, tells=tells)

    def whole(links: IntArray) -> IntArray:
        return np.flatnonzero(np.isin(classes, classes[links])).astype(np.int32)

    score = np.full(len(classes), -np.inf)
    np.maximum.at(score, classes, diagnosis.score)
    success = np.full(len(classes), np.nan)
    np.fmin.at(success, classes, diagnosis.success)
    return replace(
        diagnosis,
        flagged=whole(diagnosis.flagged),
        score=score[classes],
        success=success[classes],
        stages=tuple(whole(stage) for stage in diagnosis.stages),
        tells=tells,
    )


def with_unseen(
    diagnosis: Diagnosis, telemetry: Telemetry, reads: Sequence[Measurement]
) -> Diagnosis:
    """Return a verdict with remarks on the links that the measurements it read did not observe, and
    on those of them that are silent: remarks beside a method, which its algorithm knows nothing of.
    """
    assert diagnosis.tells is not None
    fabric, counts = telemetry.topology, telemetry.segments
    said = [diagnosis.tells.unseen(fabric.link_names, reads)]
    if said[0] and "segments" in reads and counts is not None:
        silent = silent_links(counts, fabric)
        silent = silent[~diagnosis.tells.observed[silent]]
        if len(silent):
            names = some_of([fabric.link_names[link] for link in silent.tolist()])
            said.append(
                f"silent: by ECMP's share the segments over {names} should count packets, and "
                "count none, as where a link or switch loses all"
            )
    return replace(diagnosis, remarks=(*diagnosis.remarks, *filter(None, said)))


def sorted_links(links: npt.ArrayLike) -> IntArray:
    """Ascending, unique directed link ids as int32[]."""
    return np.unique(np.asarray(links, np.int64)).astype(np.int32)


def both_directions(edges: npt.ArrayLike) -> IntArray:
    """Both directed links of each undirected link (id >> 1), ascending."""
    edge = np.unique(np.asarray(edges, np.int64))
    return np.stack((2 * edge, 2 * edge + 1), axis=1).reshape(-1).astype(np.int32)


@dataclass(frozen=True)
class Change:
    """One departure from a paper's algorithm.

    Attributes:
        name: How it is written, behind the method's name and a ``+``.
        parameter: The constructor's parameter that turns it on.
        value: What the parameter is then, unless another value is given.
        section: Where in the paper the changed step is.
        printed: What the paper says there.
        ours: What the method does with the change on.
        why: The reason.
        whose: Who thought of it: this project, the paper, which compares its method with that, or
            the authors, whose code does so.
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


def off_values(constructor: Callable[..., Any]) -> Mapping[str, Any]:
    """Return what the parameter of each change is in the published method.

    A subclass may have a constructor of its own: changes whose parameter it lacks are left out.
    """
    known = inspect.signature(_class_of(constructor)).parameters
    changes = changes_of(constructor)
    return {p: known[p].default for p in (each.parameter for each in changes) if p in known}


def on(method: object) -> tuple[Change, ...]:
    """Return the changes that are on in a method, in the order of their declaration.

    Where several share a parameter, it is the one whose value the parameter has.
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
    """Return a method's name and those of the changes behind it."""
    base, *changes = (part.strip() for part in name.split("+"))
    return base, changes


def variant(constructor: Callable[..., Any], *names: str, **calibrated: Any) -> Callable[..., Any]:
    """Return the constructor of a variant.

    Args:
        constructor: The published method's.
        names: Of its changes.
        calibrated: Defaults that the variant has of its own.

    Raises:
        ValueError: There is no such change, or it is given twice (one line).
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
