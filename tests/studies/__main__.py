# SPDX-License-Identifier: Apache-2.0
"""Measures what documents say: `python -m tests.studies NAME...`.

``comparison``, ``traces``, ``probes``, ``changes`` and ``healthy`` write files of that name in
``docs/data``, which pages of the site show; the others print figures that stand in `docs`. Each
takes from minutes to hours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from rich.console import Console

from tests.studies.changes import write_changes
from tests.studies.comparison import write_comparison
from tests.studies.data_planes import print_data_planes
from tests.studies.healthy import write_healthy
from tests.studies.int_paths import print_int
from tests.studies.laws import print_laws
from tests.studies.probes import write_probes
from tests.studies.published import print_published
from tests.studies.spraying import PARTS, print_spraying
from tests.studies.steady import print_steady
from tests.studies.time_base import print_time
from tests.studies.traces import write_traces

STUDIES: Mapping[str, Callable[[Console], None]] = {
    "comparison": write_comparison,
    "traces": write_traces,
    "probes": write_probes,
    "changes": write_changes,
    "healthy": write_healthy,
    "time": print_time,
    "steady": print_steady,
    "published": print_published,
    "laws": print_laws,
    "data-planes": print_data_planes,
    "int": print_int,
    "spraying": print_spraying,
    **PARTS,
}


def main(names: list[str]) -> None:
    for name in names or [""]:
        if name not in STUDIES:
            sys.exit(f"no study {name!r}: known are {', '.join(STUDIES)}")
    console = Console(width=180, highlight=False)
    for name in names:
        STUDIES[name](console)


if __name__ == "__main__":
    main(sys.argv[1:])
