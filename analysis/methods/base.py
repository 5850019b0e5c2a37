# SPDX-License-Identifier: Apache-2.0
"""The interface of every localization method, and what all methods share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from analysis.methods.classes import with_classes, with_unseen
from analysis.methods.constraints import checked
from analysis.methods.diagnosis import UNRANKED, Diagnosis, both_directions, sorted_links
from analysis.methods.domain import ROUTED, Domain, World
from analysis.methods.variants import Change, on
from analysis.telemetry.identifiability import Identifiability, Observations
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.arrays import FloatArray, IntArray
from testbed.fabric.clos import Fabric
from testbed.measurements.registry import MEASUREMENTS

Part = Literal["segments", "probes", "detector", "connections"]

RECORD_BYTES: Mapping[Part, int] = {"probes": 16, "detector": 12, "connections": 36}
"""Bytes of one record of each part of the telemetry, with 4 bytes a field. A probed path: the
prober and the bouncing switch, or, in deTector's static plan, the number of the path; probes sent
and lost. A connection: 13 bytes of five-tuple and 4 of retransmissions, rounded up to 20, and 4
for each of 4 traced hops."""


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
        sprayed: What the method assumes of paths that does not hold where the packets of a flow
            take several, and what becomes of it; "" if that makes no difference to it.
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
    sprayed: ClassVar[str] = ""
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
        """Return a line on what of a run is outside of the method's domain, and on what its routing
        does to the method; "" if nothing is."""
        routed = ROUTED.get(world.routing)
        found = [f"{routed}: {self.sprayed}"] if routed and self.sprayed else []
        if self.domain is not None:
            part = getattr(telemetry, getattr(self, "reads", ""), None)
            sent = getattr(part, "sent", np.zeros(0))
            sent = sent[sent > 0]
            found += [self.domain.outside(world, float(np.median(sent)) if len(sent) else None)]
        return "; ".join(line for line in found if line)

    @property
    def views(self) -> Sequence[str]:
        """Return the names of the parts of a telemetry that the method may read, which a run
        measures for it. A subclass that reads several parts overrides this; otherwise everything is
        measured for it."""
        return (self.reads,) if type(self).data is Method.data else tuple(MEASUREMENTS)

    def measurements(self, telemetry: Telemetry) -> Sequence[str]:
        """Return the names of the parts of a telemetry that the method reads."""
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


def views_of(methods: Iterable[Localizer]) -> set[str] | None:
    """Return the names of the parts of a telemetry that methods may read; None if there is no
    method, or one that does not say it: then any part may be needed."""
    found: set[str] = set()
    every = [getattr(method, "views", None) for method in methods]
    for views in every:
        if views is None:
            return None
        found |= set(views)
    return found if every else None


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
    parts = [telemetry.part(name) for name in reads]
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
