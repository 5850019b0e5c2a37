# SPDX-License-Identifier: Apache-2.0
"""A class: for each student a network with other faults, and what was measured of it without the
truth; apart from these the answers, and the grades of what was handed in.

    handouts/student-01/   fabric.parquet, observations.parquet, QUESTIONS.md, answer.csv
    answers/student-01/    run (with the truth), answer.json

The seed of a run gives its faults away, so a handout has another one: `make scenario SEED=...`
makes a network to practise on, whose truth a student may see.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.telemetry.observations import read_telemetry
from scenarios.command.localize import export
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import Progress
from scenarios.experiment.request import Scenario
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings
from testbed.errors import UserError
from testbed.fabric.names import plain, shortened, some_of
from testbed.record.bounded import MIB, read_bounded, read_json
from testbed.record.outputs import need_folder
from testbed.record.run import RunDirectory, RunWriter

HANDOUTS, ANSWERS, ANSWER, SOLUTION = "handouts", "answers", "answer.csv", "answer.json"
COLUMNS = ["question", "answer", "loss"]
LIKELY = 0.99
"""The probability of question 3."""
MOST_STUDENTS = 1000
_FACTOR = 2.0
"""An estimated loss rate is right if it is at most so many times too high or too low."""
_QUESTIONS = """# A fabric that loses packets: {student}

Some directed links of a fat-tree of K = {k} drop packets, and no counter of a switch says so.
`observations.parquet` has what was measured of it: packets counted and lost on Canary's segments,
probes, flows and traces. `fabric.parquet` has its directed links. docs/reference/record.md
describes both (*Exchange*).

Answer in `answer.csv`, a row for each answer, and hand in that file in a folder `{student}`.

1. How many path segments have observations (rows of the kind `segment`, counted once a path)?
2. Take the logarithm of the success rate of each link as unknown, and that of each of these
   segments as known. What is the rank of this system?
3. A link loses {loss} of its packets. How many packets must a segment over it count so that at
   least one is lost with a probability of 99 %?
4. Which directed links lose packets silently? Write a row for each, and in its column `loss` the
   loss rate that you estimate, from 0 to 1:

       question,answer,loss
       1,12,
       2,9,
       3,100,
       4,tor0_0->agg0_1,0.05

Methods to try: `canary localize --topology fabric.parquet --telemetry observations.parquet`. Say in
class why they differ.

To practise on a network whose truth you may see: `make scenario SEED={practice}{settings}`, and
`make show RUN=... VERBOSE=1`.
"""


@dataclass(frozen=True)
class Grade:
    """What a student's answers are worth.

    Attributes:
        student: The name of the student's folder.
        trouble: Why nothing could be graded; "" if it could.
        right: Whether the answers to questions 1 to 3 are right.
        found, missed, wrong: Directed links of question 4.
        estimated: Of the links found, those whose loss rate is right within a factor of two.
    """

    student: str
    trouble: str = ""
    right: tuple[bool, bool, bool] = (False, False, False)
    found: int = 0
    missed: int = 0
    wrong: int = 0
    estimated: int = 0

    @property
    def f1(self) -> float:
        """Return F1 of question 4, 0 to 1."""
        every = 2 * self.found + self.missed + self.wrong
        return 2 * self.found / every if every else 1.0


def make_class(
    name: str,
    scenario: Scenario,
    settings: Settings,
    students: int,
    seed: int,
    out: Path,
    progress: Progress,
) -> None:
    """Make a run for each student, and write the handouts and the answers into ``out``.

    Args:
        name: The name of the scenario.
        scenario: The scenario.
        settings: Its settings; the seed is another for each student.
        students: How many, 1 to `MOST_STUDENTS`.
        seed: The lecturer's seed: the same gives the same class.
        out: The folder, which must not exist or be empty. It appears when all is done.
        progress: Callback that receives the student and the share that is done, 0 to 1.

    Raises:
        UserError: The settings make no sense for a class, or ``out`` is taken (one line).
        OSError: It cannot be written.
    """
    if not 1 <= students <= MOST_STUDENTS:
        raise UserError(f"--students {students}: a class has 1 to {MOST_STUDENTS:,}")
    if settings.backend != "virtual":
        raise UserError("a class needs BACKEND=virtual, whose runs have meters and take no root")
    need_folder(out, what="empty folder", option="--out")
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=out.parent, prefix=".partial-"))
    try:
        seeds = np.random.SeedSequence(seed).generate_state(2 * students).reshape(-1, 2)
        digits = max(2, len(str(students)))
        for number, (own, practice) in enumerate(seeds.tolist(), 1):
            student = f"student-{number:0{digits}}"
            progress(student, (number - 1) / students)
            answers = work / ANSWERS / student
            answers.mkdir(parents=True)
            writer = RunWriter(answers / "run")
            run_experiment(layout_of(replace(settings, seed=own), scenario, name), writer, [])
            _hand_out(work / HANDOUTS / student, answers, practice)
        os.chmod(work, 0o755)
        work.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _hand_out(folder: Path, answers: Path, practice: int) -> None:
    """Write a student's handout and the answers to it, from the run in ``answers``."""
    export(answers / "run", folder, ".parquet")
    run = RunDirectory(answers / "run")
    loss = 0.002 + 0.018 * np.random.default_rng(practice).random()
    loss = float(f"{loss:.2g}")
    truth = run.table("links")
    faulty = np.flatnonzero(truth["faulty"]).tolist()
    solution = {
        "answers": [*_of_segments(run), math.ceil(math.log(1 - LIKELY) / math.log1p(-loss))],
        "links": list(truth["name"]),
        "faulty": {truth["name"][link]: float(truth["rate"][link]) for link in faulty},
    }
    (answers / SOLUTION).write_text(json.dumps(solution) + "\n")
    config = dict(run.config)
    words = {"K": config["k"], "FAULTS": config["faults"], "SCENARIO": config["scenario"]}
    usual = {"K": 4, "FAULTS": "10pct", "SCENARIO": "faulty_links"}
    more = "".join(f" {word}='{v}'" for word, v in words.items() if v != usual[word])
    (folder / "QUESTIONS.md").write_text(
        _QUESTIONS.format(
            student=folder.name,
            k=config["k"],
            loss=f"{100 * loss:.2g} %",
            practice=practice,
            settings=more,
        )
    )
    (folder / ANSWER).write_text(",".join(COLUMNS) + "\n")


def _of_segments(run: RunDirectory) -> list[int]:
    """Return the number of observed segments, and the rank of their incidence with links."""
    counts = read_telemetry(run).segments
    if counts is None:
        return [0, 0]
    seen = np.flatnonzero(counts.sent.sum(axis=0))
    paths = counts.segments.paths.take(seen)
    crosses = np.zeros((len(seen), run.whole.n_links))
    crosses[paths.owner, paths.links] = 1
    return [len(seen), int(np.linalg.matrix_rank(crosses))]


# ---- grades --------------------------------------------------------------------------------------


def grade_class(handed_in: Path, answers: Path) -> list[Grade]:
    """Return a grade for each student of a class.

    Args:
        handed_in: A folder with a folder for each student, in it `ANSWER`.
        answers: The folder of the answers.

    Raises:
        UserError: There is no such folder, or it holds no answers (one line).
    """
    if not handed_in.is_dir():
        raise UserError(f"{handed_in} is not a folder: give that of what was handed in")
    solutions = sorted(answers.glob(f"*/{SOLUTION}"))
    if not solutions:
        raise UserError(f"{answers} holds no answers: give those of canary class make, --answers")
    known = [path.parent.name for path in solutions]
    others = [path.name for path in handed_in.iterdir() if path.is_dir() and path.name not in known]
    grades = [_grade(handed_in / path.parent.name, path) for path in solutions]
    return grades + [Grade(name, "there is no such student") for name in sorted(others)]


def _grade(folder: Path, solution: Path) -> Grade:
    """Return the grade of a student's folder; a file of a student is data that may be anything."""
    try:
        rows = list(_rows(folder / ANSWER))
        return _compared(folder.name, rows, read_json(solution))
    except FileNotFoundError:
        return Grade(folder.name, f"{ANSWER} was not handed in")
    except OSError as error:
        return Grade(folder.name, f"{ANSWER}: {error.strerror}")
    except UserError as error:
        return Grade(folder.name, f"{ANSWER}: {error}")


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield question, answer and loss of each row.

    Raises:
        OSError, UserError: The file cannot be read, or is none of answers (one line).
    """
    if path.is_symlink():
        raise UserError("it is a symbolic link")
    try:
        text = read_bounded(path, MIB).decode("utf-8-sig")
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    except (UnicodeDecodeError, csv.Error):
        raise UserError("it is no CSV in UTF-8") from None
    if not rows or [cell.lower() for cell in rows[0]] != COLUMNS:
        raise UserError(f"its first line is not {','.join(COLUMNS)}")
    for number, row in enumerate(rows[1:], 2):
        question, answer, loss = [*row, "", ""][:3]
        if question not in ("1", "2", "3", "4") or len(row) > 3:
            shown = shortened(plain(",".join(row)))
            raise UserError(f"line {number}, {shown!r}, is no answer to question 1, 2, 3 or 4")
        yield int(question), answer, loss


def _compared(
    student: str, rows: Sequence[tuple[int, str, str]], solution: Mapping[str, Any]
) -> Grade:
    """Return the grade of a student's rows.

    Raises:
        UserError: A link does not exist, or a question has two answers (one line).
    """
    faulty = solution["faulty"]
    right = []
    for question, wanted in enumerate(solution["answers"], 1):
        given = [answer for each, answer, _ in rows if each == question]
        if len(given) > 1:
            raise UserError(f"question {question} has {len(given)} answers")
        right.append(bool(given) and _number(given[0]) == wanted)
    blamed = {answer: loss for each, answer, loss in rows if each == 4}
    if unknown := sorted(set(blamed) - set(solution["links"])):
        raise UserError(f"there is no directed link {shortened(plain(some_of(unknown)))}")
    found = [link for link in blamed if link in faulty]
    close = [link for link in found if _close(_number(blamed[link]), faulty[link])]
    return Grade(
        student,
        right=(right[0], right[1], right[2]),
        found=len(found),
        missed=len(faulty) - len(found),
        wrong=len(blamed) - len(found),
        estimated=len(close),
    )


def _number(text: str) -> float:
    """Return the number of a text, nan if it is none."""
    try:
        return float(text.replace(",", ".").removesuffix("%")) / (100 if "%" in text else 1)
    except ValueError:
        return math.nan


def _close(estimate: float, rate: float) -> bool:
    return estimate > 0 and 1 / _FACTOR <= estimate / rate <= _FACTOR
