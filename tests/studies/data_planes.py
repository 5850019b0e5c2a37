# SPDX-License-Identifier: Apache-2.0
"""What each data plane buys: `python -m tests.studies data-planes`, as tables of Markdown.

The first table is of the main job (virtual time, 10 % of the links faulty), each data plane on the
same packets beside Canary's. The second has the memory at which 99 % of the epochs of one link can
be decoded, 10,000 flows and 833,333 packets as in the Canary paper's figure 6 (a), and the
processor time to decode: the model with independent hashes and random flow IDs, and the data plane
with the hash of its switches and the flow IDs of a fabric. What a switch counts of given packets
is what the model counts with that hash (`tests.testbed.measurements.test_link_meters`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from canary import run
from scenarios.papers.canary_sketches import RATES, SHARE, Epoch, decode, kilobytes
from scenarios.papers.sketches.sizing import PEELING, smallest_width
from testbed.arrays import WordArray
from testbed.dataplane import BUCKETS, DSM, HASHPIPE, ROWS, USM
from testbed.fabric.fat_tree import FatTree
from testbed.measurements.link_meters import LinkMeasurement, LinkMeters
from testbed.measurements.registry import ON_REQUEST
from testbed.measurements.sketches.fermat import FermatSketch
from testbed.measurements.sketches.hashing import SWITCH
from testbed.measurements.sketches.loss_radar import LossRadar, signatures
from testbed.record.run import RunDirectory

METERS = [each for each in ON_REQUEST if isinstance(each, LinkMeasurement)]
SEEDS = {4: 10, 8: 3}
TRIES = 100


def canary_memory() -> float:
    """Return the kilobytes of Canary's meters, of both parities, and of HashPipe."""
    meters = ROWS * 2 * BUCKETS * (USM.bucket_bits + DSM.bucket_bits)
    return (meters + len(HASHPIPE.stages) * HASHPIPE.entries * (104 + 32)) / 8e3


def print_data_planes(console: Console) -> None:
    """Print what each data plane costs and finds, and the memory that its sketch needs."""
    head = (
        "| K | data plane | method | memory a switch | collected | rules | F1 | wrong | decoded |"
    )
    console.print(head, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |", sep="\n")
    for k, seeds in SEEDS.items():
        for line in _localized(k, seeds):
            console.print(line, soft_wrap=True)
    console.print("\n| sketch | loss | decoded | KB, model | KB, data plane | s, model | s |")
    console.print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in ("LossRadar", "FermatSketch"):
        for rate in RATES:
            console.print(_sized(name, rate), soft_wrap=True)


def _localized(k: int, seeds: int) -> list[str]:
    """Return the rows of the first table for a fabric."""
    rows: dict[tuple[str, str, float], list[tuple[float, ...]]] = {}
    for seed in range(1, seeds + 1):
        for meter in METERS:
            own = f"per-link-loss:meter={meter.name}"
            with tempfile.TemporaryDirectory() as folder:
                methods = f"canary,canary-mle,{own}"
                run(path=Path(folder) / "run", methods=methods, k=k, seed=seed, faults="10pct")
                record = RunDirectory(Path(folder) / "run")
                summary, counts = record.summary, record.table("link_counts")
                installed = record.network.get("rules_installed", 0)
                share = counts["decoded"].sum() / counts["lost"].sum()
                links = 2 * record.fabric.n_links if isinstance(meter, LinkMeters) else 0
                # What is read of an epoch is half of what a switch has: one of two parities.
                size = 2 * counts["bytes"].sum() / record.network["epochs"] / 1e3
                size = round(size / record.fabric.n_switches)
            for method, plane, kilobytes_, rules, told in (
                (own, meter.name, size, links, share),
                *((m, "canary", canary_memory(), installed, 0) for m in ("canary", "canary-mle")),
            ):
                if plane == "canary" and meter is not METERS[0]:
                    continue  # the same packets
                entry: Any = summary["methods"][method]
                scores = entry["directed"]
                row = entry["telemetry_bytes"], rules, scores["f1"], scores["false_positives"], told
                rows.setdefault((plane, method, kilobytes_), []).append(row)
    lines = []
    for (plane, method, size), found in rows.items():
        data, rules, f1, wrong, told = np.mean(found, axis=0)
        decoded = f"{told:.1%}" if told else "-"
        name = method.split(":")[0]
        lines.append(
            f"| {k} | `{plane}` | `{name}` | {size:,.0f} KB | {data / 1e6:.1f} MB | {rules:,.0f} "
            f"| {f1:.3f} | {wrong:.1f} | {decoded} |"
        )
    return lines


@cache
def _flow_ids(n: int, seed: int) -> tuple[WordArray, WordArray]:
    """Return n flow IDs of a fat-tree: addresses of hosts, ports and protocols."""
    rng, ips = np.random.default_rng([seed, 5]), FatTree(8).host_ip.astype(np.uint64)
    src, dst = ips[rng.integers(0, len(ips), (2, n))]
    ports = rng.integers(1024, 1 << 16, (2, n)).astype(np.uint64)
    protocol = rng.choice(np.array([6, 17], np.uint64), n)
    hi = src << np.uint64(8) | dst >> np.uint64(24)
    lo = (dst & np.uint64(0xFFFFFF)) << np.uint64(40) | ports[0] << np.uint64(24)
    return hi, lo | ports[1] << np.uint64(8) | protocol


def _data_plane(name: str, epoch: Epoch, width: int, seed: int) -> tuple[bool, float]:
    """Return whether all losses of an epoch are decoded from the cells of a switch, and the
    processor seconds of decoding."""
    hi, lo = _flow_ids(len(epoch.sent), seed)
    if name == "LossRadar":
        meter = LossRadar(width, seed=SWITCH)
        meter.add(*signatures(hi, lo, epoch.lost)[:2])
        begin = time.process_time()
        found, _, complete = meter.decode()
        return complete and len(found) == epoch.lost.sum(), time.process_time() - begin
    sketch, victims = FermatSketch(width, seed=SWITCH), epoch.lost > 0
    sketch.add(hi[victims], lo[victims], epoch.lost[victims])
    begin = time.process_time()
    *_, packets, complete = sketch.decode()
    return complete and packets.sum() == epoch.lost.sum(), time.process_time() - begin


def _sized(name: str, rate: float) -> str:
    """Return a row of the second table."""
    drawn = cache(lambda seed: Epoch.draw(rate, seed))
    items = int(np.median([_items(name, drawn(seed)) for seed in range(5)]))
    tries = TRIES if items < 12_000 else TRIES // 4
    figures: list[float] = []
    for of in (decode, _data_plane):

        def succeeds(width: int, number: int, of: Callable[..., Any] = of) -> bool:
            return bool(of(name, drawn(number), width, number)[0])

        start = max(1, int(PEELING * items / 3))
        width = smallest_width(succeeds, start, share=SHARE, tries=tries, precision=0.01)
        seconds = min(of(name, drawn(seed), width, seed)[1] for seed in range(5))
        figures += [kilobytes(name, width), seconds]
    model, model_s, plane, plane_s = figures
    return (
        f"| {name} | {rate:g} | {items:,} | {model:,.1f} | {plane:,.1f} | {model_s:.4f} "
        f"| {plane_s:.4f} |"
    )


def _items(name: str, epoch: Epoch) -> int:
    """Return how many items a sketch has to decode: lost packets, or flows with losses."""
    return int(epoch.lost.sum() if name == "LossRadar" else (epoch.lost > 0).sum())
