# SPDX-License-Identifier: Apache-2.0
"""What methods find where flows do not keep their path: `python -m tests.studies spraying`, in
Markdown.

Tables of F1 and wrong links with each routing, on the same traffic, faults and seeds; of training
whose senders react to losses: who finds the link, after how long, and the time that training loses
if nobody acts, and if the links that a method blames first are taken out of routing; of the time
lost by routing and by what senders do about losses; and of the iterations that show a link among 64
spines. A faulty link that a method does not observe counts as missed, unlike in the table of a run.
`python -m tests.studies spraying-findings` prints the first alone, and so on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from rich.console import Console

from analysis.methods.diagnosis import Diagnosis
from analysis.methods.spray_check import SprayCheck
from analysis.telemetry.telemetry import Telemetry
from canary import run
from testbed.control.routings import Routing
from testbed.record.run import RunDirectory

METHODS = "canary,netbouncer,flock,007,detector,netscope,flock+links,canary-mle,mle"
ROUTINGS: tuple[Routing, ...] = get_args(Routing)
SEEDS = range(1, 11)
FAULTS = {
    "10pct": "10 % of the links",
    "1links:0.015": "one link of 1.5 %",
    "1links:0.005": "one link of .5 %",
}
REACTING: dict[str, Any] = {
    "topology": "leaf-spine:8:4:0.5",
    "rate": 1000,
    "load": 0.5,
    "epoch_ms": 1000,
    "epochs": 5,
}
"""16 ranks, two at each of 8 leaves, on links of 1 Gb/s: some eight iterations an epoch."""
MANY_SPINES: dict[str, Any] = {
    "topology": "leaf-spine:16:64:0.0625",
    "traffic": "ring-allreduce:mb=16",
    "load": 0.25,
    "epoch_ms": 1100,
    "routing": "spray",
}
"""64 ranks, a sixteenth of a host for each uplink: an iteration takes an epoch."""
ITERATIONS = (1, 2, 4, 8)


def methods_of(routing: Routing, methods: str = METHODS) -> str:
    """Return the methods that can be asked where switches choose uplinks so."""
    return methods if routing == "ecmp" else f"{methods},spray-check,spray-check+pool"


def scored(folder: Path, **settings: Any) -> dict[str, tuple[float, int, int]]:
    """Return F1, wrong links and missed ones of each method of a run."""
    run(path=folder / "run", **settings)
    found = {}
    for name, entry in RunDirectory(folder / "run").summary["methods"].items():
        own: Any = entry[entry["native"]]
        right, wrong = own["true_positives"], own["false_positives"]
        missed = own["false_negatives"] + len(own["unobserved"])
        found[name] = 2 * right / max(2 * right + wrong + missed, 1), wrong, missed
    return found


def in_folder(what: Callable[..., Any], **settings: Any) -> Any:
    """Return what a function makes of a run, in a folder that is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        return what(Path(folder), **settings)


def print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    for row in (head, ["---"] * len(head), *rows):
        console.print("|", " | ".join(row), "|", soft_wrap=True)


def print_findings(console: Console) -> None:
    """Print F1 and wrong links a run, for each share of faulty links and routing."""
    for faults, words in FAULTS.items():
        console.print(f"\nleaf-spine:8:4, {words}, {len(SEEDS)} seeds: F1 (wrong links a run)\n")
        cells: dict[str, dict[str, str]] = {}
        for routing in ROUTINGS:
            runs = [
                in_folder(
                    scored,
                    methods=methods_of(routing),
                    topology="leaf-spine:8:4",
                    faults=faults,
                    routing=routing,
                    seed=seed,
                )
                for seed in SEEDS
            ]
            for name in runs[0]:
                f1, wrong, _ = np.mean([each[name] for each in runs], axis=0)
                cells.setdefault(name, {})[routing] = f"{f1:.2f} ({wrong:.1f})"
        print_table(
            console,
            ["method", *(f"`{each}`" for each in ROUTINGS)],
            [[f"`{n}`", *(row.get(r, "–") for r in ROUTINGS)] for n, row in cells.items()],
        )


@dataclass(frozen=True)
class Trained:
    """What a run of training showed.

    Attributes:
        ended_ns: When each iteration ended, int64.
        verdicts: The links that each method blamed after each epoch, by name.
        faulty: The names of the faulty links.
    """

    ended_ns: npt.NDArray[np.int64]
    verdicts: Mapping[str, Mapping[int, list[str]]]
    faulty: Sequence[str]


def trained(folder: Path, **settings: Any) -> Trained:
    """Return what a run of training shows."""
    chosen: dict[str, Any] = REACTING | settings
    run(path=folder / "run", **chosen)
    record = RunDirectory(folder / "run")
    names = record.fabric.link_names
    verdicts: dict[str, dict[int, list[str]]] = {name: {} for name in record.summary["methods"]}
    if record.has("verdicts"):
        table = record.table("verdicts")
        columns = table["epoch"].tolist(), list(table["method"]), table["link"].tolist()
        for epoch, method, link in zip(*columns, strict=True):
            verdicts[method].setdefault(epoch, []).append(names[link])
    faulty = record.summary["faulty_links"]
    return Trained(np.asarray(record.table("iterations")["end_ns"]), verdicts, faulty)


def acting_on(links: Sequence[str], epoch: int) -> str:
    """Return the events that take links out of routing a tenth of an epoch after one has ended: an
    uplink at its leaf, and a link that leads down with all uplinks to its spine. A leaf keeps one
    uplink."""
    seconds = (epoch + 1.1) * REACTING["epoch_ms"] / 1000
    drained: dict[str, list[str]] = {}
    for link in links:
        src, dst = link.split("->")
        up = src.startswith("leaf")
        for leaf in [src] if up else [f"leaf{i}" for i in range(8)]:
            spines = drained.setdefault(leaf, [])
            if (spine := dst if up else src) not in spines and len(spines) < 3:
                spines.append(spine)
    return "; ".join(
        f"{seconds:g} drain {leaf}->{spine}" for leaf, own in drained.items() for spine in own
    )


def print_acting(console: Console) -> None:
    """Print who finds a link that training crosses, when, and the time that training loses."""
    head = ["routing", "method", "finds it", "after", "false alarms an epoch", "time lost"]
    for traffic in ("ring-allreduce", "all-to-all"):
        console.print(f"\n{traffic}, one link of 1.5 %, selective repeat, {len(SEEDS)} seeds\n")
        print_table(console, head, [])
        for routing in ROUTINGS:
            for row in _acting(f"{traffic}:mb=4:selective-repeat", routing):
                console.print("|", " | ".join(row), "|", soft_wrap=True)


def _acting(traffic: str, routing: Routing) -> list[list[str]]:
    """Return the rows of a routing."""
    lost: dict[str, list[float]] = {}
    detected: dict[str, list[float]] = {}
    alarms: dict[str, list[float]] = {}
    epochs = REACTING["epochs"]
    for seed in SEEDS:
        settings = {"traffic": traffic, "routing": routing, "seed": seed}
        healthy = in_folder(trained, faults="none", methods="any-loss", **settings)
        asked: dict[str, Any] = {"methods": methods_of(routing), "diagnose": "epoch"}
        faulty = in_folder(trained, faults="1links:0.015", **asked, **settings)
        first = {n: min(each.items(), default=None) for n, each in faulty.verdicts.items()}
        events = {
            n: acting_on(each[1], each[0])
            for n, each in first.items()
            if each is not None and each[0] < epochs - 1  # later it changes nothing any more
        }
        acted = {
            each: in_folder(
                trained, faults="1links:0.015", methods="any-loss", events=each, **settings
            )
            for each in set(events.values())
        }
        runs = [healthy, faulty, *acted.values()]
        n = min(len(each.ended_ns) for each in runs)
        in_time = float(healthy.ended_ns[n - 1])

        def share(one: Trained, n: int = n, in_time: float = in_time) -> float:
            """The time lost until the n-th iteration has ended."""
            return 100 * (float(one.ended_ns[n - 1]) / in_time - 1)

        lost.setdefault("nobody acts", []).append(share(faulty))
        for name, verdicts in faulty.verdicts.items():
            wrong = sum(len(set(each) - set(faulty.faulty)) for each in verdicts.values())
            alarms.setdefault(name, []).append(wrong / epochs)
            right = [e for e, each in verdicts.items() if set(each) & set(faulty.faulty)]
            detected.setdefault(name, [])
            if right:
                detected[name].append((min(right) + 1) * REACTING["epoch_ms"] / 1000)
            one = acted[events[name]] if name in events else faulty
            lost.setdefault(name, []).append(share(one))
    rows = [[f"`{routing}`", "nobody acts", "", "", "", f"{np.mean(lost['nobody acts']):.1f} %"]]
    for name, seconds in detected.items():
        rows.append(
            [
                f"`{routing}`",
                f"`{name}`",
                f"{len(seconds)} of {len(SEEDS)}",
                f"{np.mean(seconds):.1f} s" if seconds else "–",
                f"{np.mean(alarms[name]):.2f}",
                f"{np.mean(lost[name]):.1f} %",
            ]
        )
    return rows


def print_senders(console: Console) -> None:
    """Print the time of an iteration of a ring without faults, and what faults add, by what senders
    do about losses and by routing."""
    seeds = list(SEEDS)[:3]
    console.print(f"\nIteration of a ring, and what a link of 1.5 % adds, {len(seeds)} seeds\n")
    print_table(console, ["senders", *(f"`{each}`" for each in ROUTINGS)], [])
    for recovery in ("go-back-n", "selective-repeat"):
        row = [f"`{recovery}`"]
        for routing in ROUTINGS:
            healthy, faulty = (
                np.mean(
                    [
                        in_folder(
                            mean_iteration_ms,
                            faults=faults,
                            traffic=f"ring-allreduce:mb=4:{recovery}",
                            routing=routing,
                            seed=seed,
                        )
                        for seed in seeds
                    ]
                )
                for faults in ("none", "1links:0.015")
            )
            row.append(f"{healthy:.0f} ms, {100 * (faulty / healthy - 1):+.1f} %")
        console.print("|", " | ".join(row), "|", soft_wrap=True)


def mean_iteration_ms(folder: Path, **settings: Any) -> float:
    """Return the mean time from an iteration to the next one in a run, in ms."""
    ended = trained(folder, methods="any-loss", epochs=2, **settings).ended_ns
    return float(ended[-1]) / len(ended) / 1e6


class Cumulative(SprayCheck):
    """`spray-check`, asked after each epoch for what all epochs so far counted.

    Attributes:
        verdicts: The links that it blamed after each.
    """

    base = "cumulative"
    changes = ()

    def __init__(self, *, pool: bool = False) -> None:
        super().__init__(pool=pool)
        self.verdicts: list[list[int]] = []
        self._packets: npt.NDArray[np.int64] | None = None

    @property
    def name(self) -> str:
        """Return a name for each of both."""
        return f"cumulative-{self.pool}"

    def localize(self, telemetry: Telemetry) -> Diagnosis:
        """Return the verdict on all counts so far."""
        counts = telemetry.need("spray_check", self.name)
        before = np.zeros_like(counts.packets) if self._packets is None else self._packets
        self._packets = before + counts.packets
        views = {"spray_check": replace(counts, packets=self._packets)}
        verdict = super().localize(replace(telemetry, views=views))
        self.verdicts.append(verdict.flagged.tolist())
        return verdict


def found_alone(folder: Path, **settings: Any) -> npt.NDArray[np.bool_]:
    """Return whether the faulty link alone was blamed after each iteration, without and with
    pooling, bool[2, iterations]."""
    asked = [Cumulative(pool=pool) for pool in (False, True)]
    run(path=folder / "run", methods=asked, diagnose="epoch", **settings)
    truth = np.flatnonzero(RunDirectory(folder / "run").table("links")["faulty"]).tolist()
    epochs = settings["epochs"]
    return np.asarray([[each == truth for each in one.verdicts[:epochs]] for one in asked])


def print_spines(console: Console) -> None:
    """Print in how many seeds `spray-check` names a link of 64 spines alone, by iterations."""
    console.print(f"\n64 spines, {len(SEEDS)} seeds: those in which the link alone is blamed\n")
    print_table(console, ["a link of", "method", *(f"{n} iterations" for n in ITERATIONS)], [])
    for rate, most in (("0.015", 2), ("0.005", 8)):
        settings: dict[str, Any] = MANY_SPINES | {"epochs": most, "faults": f"1links:{rate}"}
        every = [in_folder(found_alone, seed=seed, **settings) for seed in SEEDS]
        alone = np.sum(every, axis=0)
        for name, row in zip(("spray-check", "spray-check+pool"), alone, strict=True):
            cells = [str(row[n - 1]) if n <= most else "–" for n in ITERATIONS]
            console.print("|", " | ".join([rate, f"`{name}`", *cells]), "|", soft_wrap=True)


PARTS: Mapping[str, Callable[[Console], None]] = {
    "spraying-findings": print_findings,
    "spraying-acting": print_acting,
    "spraying-senders": print_senders,
    "spraying-spines": print_spines,
}


def print_spraying(console: Console) -> None:
    """Print all tables of spraying."""
    for part in PARTS.values():
        part(console)
