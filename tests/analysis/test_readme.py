# SPDX-License-Identifier: Apache-2.0
"""The pages on methods are true: the table has every method, and the example diagnoses."""

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import METHODS, ON_REQUEST
from analysis.telemetry.telemetry import MissingTelemetry, Telemetry

DOCS = Path(__file__).parents[2] / "docs"
README = (DOCS / "reference" / "methods.md").read_text()
METHOD = (DOCS / "do" / "method.md").read_text()
ROWS = re.findall(
    r"^\| `([\w+-]+)` \|[^|\n]*\|([^|\n]*)\|([^|\n]*)\|[^|\n]*\|$", README, re.MULTILINE
)
"""Of the table of methods, which has five columns."""


def test_the_table_has_every_method_once_in_their_order():
    assert [name for name, _, _ in ROWS] == [*METHODS, *ON_REQUEST]


@pytest.mark.parametrize(("name", "reads", "native"), ROWS)
def test_the_table_says_what_a_method_reads_and_blames(synthetic, name, reads, native):
    world = synthetic.make_world(k=4, seed=2, flows=500)
    method = (METHODS | ON_REQUEST)[name]()
    assert method.localize(world.telemetry).native in native or "as `flock`" in native
    with pytest.raises(MissingTelemetry, match=re.findall(r"`(\w+)`", reads)[0]):
        method.localize(Telemetry(world.topology, "tor+core"))


def test_the_example_is_a_method(synthetic):
    names: dict[str, type] = {}
    exec(re.findall(r"```python\n(.*?)```", METHOD, re.DOTALL)[0], names)
    world = synthetic.make_world(k=4, seed=2)
    method = names["WorstSegments"]()
    diagnosis = method.localize(world.telemetry)
    assert diagnosis.method == "worst-segments" and diagnosis.seconds > 0
    assert len(np.intersect1d(diagnosis.flagged, world.faulty)) > 0
    assert method.telemetry_bytes(world.telemetry) == world.telemetry.canary_bytes
    assert method.probe_packets(world.telemetry) == 0
    with pytest.raises(MissingTelemetry, match="worst-segments needs .*'segments'"):
        method.localize(Telemetry(world.topology, "tor"))
