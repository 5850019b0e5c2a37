# SPDX-License-Identifier: Apache-2.0
"""The testbed from Python: `run` a scenario, `load` a run, `localize` telemetry from elsewhere.

Import from `scenarios`. Nothing here prints. Wrong input raises ValueError with the same line
that the command line prints.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from rich.console import Console

from analysis.evaluation.metrics import Score, score
from analysis.evaluation.parameter_sets import choose_methods
from analysis.evaluation.report import diagnosis_columns
from analysis.evaluation.screen import LINE_WIDTH, print_screen, screen
from analysis.importers.tables import fabric_of_telemetry
from analysis.methods.base import Localizer, diagnose, diagnose_elsewhere
from analysis.methods.diagnosis import Diagnosis
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import Scenario, make_request
from scenarios.experiment.run import default_directory, run_experiment
from scenarios.frames import (
    FRAMES,
    flows_frame,
    frame_of,
    links_frame,
    to_networkx,
    to_polars,
    verdicts_frame,
)
from scenarios.keywords import GivenSettings, Methods, as_methods, as_settings
from scenarios.notebook import Plots, as_html
from scenarios.process.namespace import call_inside
from testbed.errors import UserError
from testbed.fabric.packet_fabric import PacketFabric
from testbed.record.exchange import OBSERVATIONS
from testbed.record.flow_ids import five_tuples
from testbed.record.foreign import Receipt, arrow_table, table_in
from testbed.record.run import RunDirectory, RunWriter
from testbed.record.run_tables import FABRIC, registers
from testbed.record.schema import Schema

if TYPE_CHECKING:
    from pandas import DataFrame
    from typing_extensions import Unpack

REGISTERS = "registers"
TableLike: TypeAlias = "str | Path | DataFrame | pa.Table | Mapping[str, Any] | Sequence[Any] | Any"
"""A table: the path of a file, or the columns, in any object that has an Arrow stream."""


def run(
    scenario: str | Scenario | None = None,
    *,
    path: str | Path | None = None,
    config: str | Path | None = None,
    methods: Methods | None = None,
    parameters: str | Path = "default",
    fault_rate: float | None = None,
    **settings: Unpack[GivenSettings],
) -> Run:
    """Emulate a scenario and diagnose it with every method, as `canary run`.

    Args:
        scenario: Its name, the path of its file, or a `Scenario`; by default ``faulty_links``.
        path: Directory of the run, by default ``runs/<time>-<scenario>``.
        config: Settings from a YAML file or an earlier run, see `scenarios.experiment.request`.
        methods: As the option METHODS: ``flock:p_bad=0.01,007``, a list of names, or methods of
            your own as objects; by default those of the testbed.
        parameters: ``default``, ``paper``, or a file of `canary calibrate`.
        fault_rate: The loss rate from which on a link is faulty, for methods that ask.
        settings: Settings by name, such as ``k=8``; ``backend`` is ``virtual`` by default. Lists
            and other objects are accepted, see `scenarios.keywords.as_settings`: ``faults=0.1``.

    Raises:
        ValueError: A setting makes no sense, or the run cannot be made (one line).

    >>> result = run(faults="tor0_0->agg0_1:0.05", epochs=2, load=0.02, methods="canary-mle,flock")
    >>> result.faulty, result.figures.f1.to_dict()
    (['tor0_0->agg0_1'], {'flock': 1.0, 'canary-mle': 1.0})
    """
    chosen = as_methods(methods, str(parameters), fault_rate)
    file = None if config is None else Path(config)
    request = make_request(scenario, as_settings(settings), file)
    layout = layout_of(request.settings(), request.scenario, request.name)
    where = default_directory(request.name) if path is None else Path(path)
    writer = RunWriter(where, numbered=path is None)

    def emulate() -> None:
        """Emulate and diagnose here, or, on real packets, where it can have a network."""
        run_experiment(layout, writer, chosen)

    call_inside(emulate, layout.network)
    return load(writer.path)


def load(path: str | Path, *, trust: bool = False) -> Run:
    """Return a finished run, or an interrupted one that was diagnosed.

    Args:
        trust: Whether to read the run even if its files were changed after it ended.

    Raises:
        ValueError: ``path`` holds no run, or a run that was changed (one line).

    >>> made = run("low_rate", backend="flow", epochs=1, methods="canary-mle", path="runs/mine")
    >>> load("runs/mine").summary["scenario"]
    'low_rate'
    """
    return Run(RunDirectory.or_interrupted(Path(path), trust))


def localize(
    fabric: TableLike,
    observations: TableLike,
    method: str | Localizer,
    parameters: str | Path = "default",
    fault_rate: float | None = None,
    *,
    strict: bool = False,
) -> Verdict:
    """Return a method's verdict on telemetry that was measured elsewhere, as `canary localize`.

    Args:
        fabric: The directed links, as a file or as a frame with the columns ``link`` (a number),
            ``src`` and ``dst`` (names of switches), and ``src_tier``, ``dst_tier`` (0 for ToRs; the
            other tiers may be missing). A frame is one of pandas or polars, an Arrow table, a
            dictionary of columns or a list of rows.
        observations: What was measured on which paths, as a file or as a frame. The record's
            description has the columns of both: *Exchange*.
        method: Its name, such as ``flock:p_bad=0.01``, the path of a Python file with one, or
            the method itself.
        parameters: ``default``, ``paper``, or a file of `canary calibrate`.
        fault_rate: The loss rate from which on a link is faulty, for methods that ask.
        strict: Whether to refuse files that are not exactly as the description has them; else what
            it took to read them is in the verdict's ``receipt``.

    Raises:
        ValueError: There is no such method, a row makes no sense, or the method reads another kind
            of observations (one line).

    >>> from pandas import DataFrame
    >>> links = [("leaf0", "top"), ("top", "leaf0"), ("leaf1", "top"), ("top", "leaf1")]
    >>> fabric = DataFrame(links, columns=["src", "dst"]).rename_axis("link").reset_index()
    >>> fabric = fabric.assign(src_tier=[0, 1, 0, 1], dst_tier=[1, 0, 1, 0])
    >>> probes = DataFrame({"id": [1, 2], "kind": "active", "sent": 5000, "lost": [400, 0]})
    >>> probes["nodes"] = [[["leaf0", "top"]], [["leaf1", "top"]]]
    >>> localize(fabric, probes, "flock").blamed
    ['leaf0->top']
    """
    made = _method(method, parameters, fault_rate)
    receipt = Receipt()
    of = None if strict else receipt
    numbered = fabric_of_telemetry(_source(fabric, FABRIC), of)
    telemetry = read_observations(_source(observations, OBSERVATIONS), numbered, of)
    found = diagnose_elsewhere(made, telemetry)
    return Verdict(found, None, telemetry, receipt=tuple(receipt.lines()))


def _source(source: TableLike, schema: Schema) -> Path | pa.Table:
    """Return the path of a table's file, or a frame as an Arrow table."""
    if isinstance(source, str | Path):
        return table_in(Path(source), schema.name)
    return arrow_table(source, schema.name)


def _method(
    method: str | Localizer, parameters: str | Path, fault_rate: float | None = None
) -> Localizer:
    """Return a method object; a name is looked up with its parameters, and must name one method."""
    if not isinstance(method, str):
        return method
    named, _ = choose_methods(method, str(parameters), fault_rate)
    if len(named) != 1:
        raise UserError(f"{method} names {len(named)} methods: name one")
    return named[0].method


class Run:
    """A finished run: its figures, its tables as frames, and the diagnosis of any method.

    Attributes:
        record: The run directory, whose tables are arrays.
        path: The path of the run directory.
        settings: The settings and the versions of the software: ``config.json``.
        summary: The figures of all methods: ``summary.json``.

    >>> result = run(faults="6links", backend="flow", epochs=3, methods="canary,canary-mle")
    >>> len(result.faulty), result.settings["k"], result.summary["metered"]["segments"]
    (6, 4, 80)
    """

    def __init__(self, record: RunDirectory) -> None:
        self.record = record
        self.path = record.path
        self.settings: Mapping[str, Any] = record.config
        self.summary: Mapping[str, Any] = record.summary

    def __repr__(self) -> str:
        return f"<run {self.path}>"

    def __str__(self) -> str:
        """Return the screen of the run as text, 80 columns wide, as `canary show` prints it."""
        text = io.StringIO()
        print_screen(screen(self.summary, LINE_WIDTH), {}, Console(file=text, width=LINE_WIDTH))
        return text.getvalue()

    def _repr_html_(self) -> str:
        """Return the fabric as a drawing and the table of methods, for a notebook."""
        return as_html(self.record.whole, self.summary)

    @property
    def plot(self) -> Plots:
        """Return what draws the run: ``run.plot.fabric()``, ``run.plot.rates("mle")``."""
        return Plots(self.record.whole, self.links, self.verdicts)

    @property
    def links(self) -> DataFrame:
        """Return a frame of the directed links, see `scenarios.frames.links_frame`."""
        return links_frame(self.record)

    @property
    def verdicts(self) -> DataFrame:
        """Return a frame of what each method says of each link, see
        `scenarios.frames.verdicts_frame`."""
        return verdicts_frame(self.record, self.summary["methods"])

    @property
    def flows(self) -> DataFrame:
        """Return a frame of the flows, see `scenarios.frames.flows_frame`."""
        return flows_frame(self.record)

    def to_polars(self, name: str) -> Any:
        """Return ``links``, ``verdicts``, ``flows``, ``figures`` or a table as a
        ``polars.DataFrame``.

        Raises:
            ValueError: polars is not installed, or the run has no such table (one line).
        """
        return to_polars(getattr(self, name) if name in FRAMES else self.table(name))

    def to_networkx(self, method: str | None = None) -> Any:
        """Return the fabric as a ``networkx.DiGraph``.

        Nodes are the names of switches with their ``tier`` and ``pod``; edges are directed links
        with the columns of `links` and, of a method, ``blamed`` and ``success``. Parallel links are
        one edge, that of the last.

        Raises:
            ValueError: networkx is not installed, or the run has no such method (one line).
        """
        return to_networkx(self.record.whole, self.links, self.verdicts, method)

    @property
    def faulty(self) -> list[str]:
        """Return the names of the directed links that had a fault, such as ``tor0_0->agg0_1``."""
        return list(self.summary["faulty_links"])

    @property
    def tables(self) -> list[str]:
        """Return the names of the run's tables, which `docs/reference/record.md` describes."""
        files = (file.relative_to(self.path) for file in self.path.rglob("*.parquet"))
        names = (file.with_suffix("") for file in files)
        return sorted({REGISTERS if name.parent.name == REGISTERS else str(name) for name in names})

    def table(self, name: str) -> DataFrame:
        """Return a table as a frame, such as ``links`` or ``diagnoses/canary``.

        The table ``registers`` has the meters' buckets of all epochs; the first column is
        ``epoch``.

        Raises:
            ValueError: The run has no such table, or it is damaged.

        >>> result = run(faults="tor0_0->agg0_1:0.05", epochs=2, load=0.02, methods="canary-mle")
        >>> links = result.table("links")
        >>> links[links.faulty][["name", "rate"]].values.tolist()
        [['tor0_0->agg0_1', 0.05]]
        """
        if name not in self.tables:
            raise UserError(f"{self.path} has no table {name}: it has {', '.join(self.tables)}")
        if name == REGISTERS:
            return self._registers()
        return frame_of(self.record.table(name))

    def _registers(self) -> DataFrame:
        """Return the non-empty buckets of the meters in all epochs, with the epoch as int32."""
        from pandas import concat

        epochs = [frame_of(self.record.table(registers(n))) for n in range(self.record.epochs)]
        for number, frame in enumerate(epochs):
            frame.insert(0, "epoch", np.int32(number))
        return concat(epochs, ignore_index=True)

    def addresses(self, table: DataFrame) -> DataFrame:
        """Return the five-tuple and the hosts of the flow in each row of a table that has the
        columns ``flow_hi`` and ``flow_lo``.

        For example, of the bucket that counted the most packets:

            >>> result = run(faults="none", epochs=2, load=0.02, methods="canary-mle", seed=3)
            >>> top = result.table("registers").nlargest(1, "count")
            >>> result.addresses(top)[["src_host", "dst_host"]].values.tolist()
            [['h2_1_0', 'h0_1_0']]

        Returns:
            A frame with the index of ``table``: ``src_ip`` and ``dst_ip`` as text, ``src_port``,
            ``dst_port`` and ``protocol`` as numbers, and ``src_host`` and ``dst_host``, the names
            of the hosts with these addresses; "" for addresses that no host has.

        Raises:
            ValueError: The table has no flow IDs.
        """
        from pandas import DataFrame

        if not {"flow_hi", "flow_lo"} <= set(table.columns):
            raise UserError("the table has no flow IDs: registers and rules have")
        flows = five_tuples(table["flow_hi"], table["flow_lo"])
        fabric, hosts = self.record.fabric, dict[int, str]()
        if isinstance(fabric, PacketFabric):
            hosts = dict(zip(fabric.host_ip.tolist(), fabric.host_names, strict=True))
        columns: dict[str, Any] = {}
        for end, ips in (("src", flows.src_ip), ("dst", flows.dst_ip)):
            known, row = np.unique(ips, return_inverse=True)
            for name, text in (("ip", _ip), ("host", lambda ip: hosts.get(ip, ""))):
                columns[f"{end}_{name}"] = np.array([text(ip) for ip in known.tolist()], object)[
                    row
                ]
        columns |= {name: getattr(flows, name) for name in ("src_port", "dst_port", "protocol")}
        return DataFrame(columns, index=table.index)

    @property
    def figures(self) -> DataFrame:
        """Return a frame with a row for each method, scored in its own terms; `canary show` prints
        the same figures.

        ``bench`` says whether a method is a paper's (``published``), of this project (``project``)
        or of the user or another package (``other``). Figures are nan where they are undefined, as
        ``precision`` is where nothing is blamed (`analysis.evaluation.metrics`). ``class_f1`` is F1
        over classes of links that the measurements cannot tell apart, and ``unobserved`` the number
        of faulty links that no measurement the method reads has observed. On real packets
        ``lost_f1`` is F1 against the links that lost packets, and ``degraded`` marks such a run.
        Where links of hosts have a verdict, ``fabric_f1`` is F1 on the others.
        """
        from pandas import DataFrame

        rows = []
        for name, entry in self.summary["methods"].items():
            scored = entry[entry["native"]]
            own = {key: v for key, v in scored.items() if not isinstance(v, list)}
            if "lost" in entry:
                own["lost_f1"] = entry["lost"][entry["native"]]["f1"]
            if "fabric" in entry:
                own["fabric_f1"] = entry["fabric"][entry["native"]]["f1"]
            own = {key: math.nan if v is None else v for key, v in own.items()}
            own["unobserved"] = len(scored.get("unobserved", ()))
            costs = {key: entry[key] for key in ("seconds", "telemetry_bytes", "probe_packets")}
            undirected = {"undirected_f1": entry["undirected"]["f1"]}
            got = {key: entry.get(key) for key in ("fed", "starved")}
            terms = {"bench": entry.get("bench", "other"), "native": entry["native"]}
            terms |= {"degraded": True} if self.summary["degraded"] else {}
            rows.append({"method": name, **terms, **own, **undirected, **costs, **got})
        return DataFrame(rows).set_index("method")

    @cached_property
    def telemetry(self) -> Telemetry:
        """Return the measurements of the run that methods may read, without the truth."""
        return read_telemetry(self.record)

    def diagnose(self, method: str | Localizer, parameters: str | Path = "default") -> Verdict:
        """Return the verdict of a method on this run.

        Args:
            method: Its name, such as ``flock:p_bad=0.01``, the path of a Python file with one, or
                the method itself: ``Flock(...)``, or one of your own.
            parameters: ``default``, ``paper``, or a file of `canary calibrate`.

        Raises:
            ValueError: There is no such method, or the run lacks the measurements that it reads.

        >>> result = run(faults="tor0_0->agg0_1:0.05", epochs=2, load=0.02, measure="all")
        >>> verdict = result.diagnose("flock:p_bad=0.02")
        >>> verdict
        <flock: F1 1.000, 1 blamed, 0 missed, 0 wrong>
        >>> verdict.blamed, verdict.score.precision
        (['tor0_0->agg0_1'], 1.0)
        >>> verdict.links.query("flagged").link.tolist()
        ['tor0_0->agg0_1']
        """
        made = _method(method, parameters)
        truth = np.flatnonzero(self.record.table("links")["faulty"])
        diagnosis = diagnose(made, self.telemetry)
        if not self.summary["degraded"]:
            return Verdict(diagnosis, truth, self.telemetry)
        lost = [self.record.whole.link(name) for name in self.summary.get("lost_links", ())]
        return Verdict(diagnosis, truth, self.telemetry, np.array(lost, np.int64))


@dataclass(frozen=True)
class Verdict:
    """A method's verdict, with the faulty links if they are known.

    Attributes:
        diagnosis: The result of the method, with links as numbers.
        truth: The numbers of the faulty directed links, ascending, int[n_faulty]; None for
            telemetry from elsewhere.
        telemetry: The measurements that the method diagnosed.
        lost: Of a degraded run the numbers of the directed links that really lost packets, by a
            fault or not, int[n]; None of a good run.
        receipt: What it took to read the tables, a line for each that was not exactly as described.
    """

    diagnosis: Diagnosis
    truth: np.ndarray | None
    telemetry: Telemetry
    lost: np.ndarray | None = None
    receipt: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.truth is None:
            return f"<{self.diagnosis.method}: {len(self.blamed)} blamed>"
        found, degraded = self.score, ""
        if self.lost is not None:
            own = score(self.diagnosis.flagged, self.lost, self.telemetry.topology)
            degraded = f" (degraded run: {own[self.diagnosis.native].f1:.3f} on what was lost)"
        return (
            f"<{self.diagnosis.method}: F1 {found.f1:.3f}{degraded}, {len(self.blamed)} blamed, "
            f"{found.false_negatives} missed, {found.false_positives} wrong>"
        )

    @cached_property
    def score(self) -> Score:
        """Return precision, recall, F1 and the errors, in the method's own terms: directed links or
        undirected ones.

        Raises:
            ValueError: The truth is not known.
        """
        if self.truth is None:
            raise UserError(
                "telemetry from files has no score, because its faulty links are not known"
            )
        fabric = self.telemetry.topology
        own = self.diagnosis
        return score(own.flagged, self.truth, fabric, own.tells)[own.native]

    @property
    def blamed(self) -> list[str]:
        """Return the names of the directed links that the method blames."""
        names = self.telemetry.topology.link_names
        return [names[link] for link in self.diagnosis.flagged.tolist()]

    @property
    def ties(self) -> list[list[str]]:
        """Return the blamed classes of two or more links that the measurements cannot tell apart,
        by name."""
        shift = self.diagnosis.native == "undirected"
        return [self._names(tuple(link >> shift for link in tie)) for tie in self.diagnosis.ties]

    @property
    def unobserved(self) -> list[str]:
        """Return the names of faulty links that no measurement the method reads has observed."""
        return self._names(self.score.unobserved)

    @property
    def missed(self) -> list[str]:
        """Return the names of the faulty links that the method does not blame; ``a--b`` if it tells
        no direction."""
        return self._names(self.score.missed)

    @property
    def wrong(self) -> list[str]:
        """Return the names of the healthy links that the method blames."""
        return self._names(self.score.wrong)

    def _names(self, links: tuple[int, ...]) -> list[str]:
        """Return the names of links, which are numbered in the method's own terms."""
        names = self.telemetry.topology.link_names
        if self.diagnosis.native == "undirected":
            return [names[2 * link].replace("->", "--") for link in links]
        return [names[link] for link in links]

    @property
    def links(self) -> DataFrame:
        """Return a frame with a row for each directed link: the columns of the diagnosis and, if
        the truth is known, whether the link was ``faulty``."""
        columns = diagnosis_columns(self.diagnosis, self.telemetry.topology)
        if self.truth is None:
            return frame_of(columns)
        faulty = np.isin(np.arange(self.telemetry.topology.n_links), self.truth)
        return frame_of(dict(columns) | {"faulty": faulty})


def _ip(address: int) -> str:
    return str(IPv4Address(address))
