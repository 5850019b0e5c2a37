# SPDX-License-Identifier: Apache-2.0
"""A class: what students get, what it keeps from them, and what their answers are worth."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from scenarios.command.classroom import MOST_STUDENTS
from testbed.record.run import RunDirectory
from tests.scenarios.conftest import Canary

STUDENTS = ("student-01", "student-02")


@pytest.fixture
def school(canary: Canary, tmp_path: Path) -> Path:
    out = tmp_path / "class"
    words = ("EPOCHS=1", "LOAD=0.03", "FAULTS=4links:0.05..0.3", "SEED=7", f"--out={out}")
    made = canary("class", "make", "--students=2", *words)
    assert made.code == 0, made
    assert f"answers   {out}/answers   keep them" in made.out and "SEED=7" in made.out
    return out


def solution(school: Path, student: str) -> dict[str, Any]:
    return json.loads((school / "answers" / student / "answer.json").read_text())


def hand_in(school: Path, student: str, *rows: str) -> None:
    lines = "\n".join(["question,answer,loss", *rows]) + "\n"
    (school / "handouts" / student / "answer.csv").write_text(lines)


def grades(canary: Canary, school: Path) -> dict[str, dict[str, Any]]:
    result = canary("class", "grade", str(school / "handouts"), "--json")
    assert result.code == 0, result
    return {each["student"]: each for each in json.loads(result.out)["grades"]}


def test_a_handout_has_what_was_measured_and_not_the_truth(school: Path) -> None:
    seeds = set()
    for student in STUDENTS:
        folder = school / "handouts" / student
        names = {path.name for path in folder.iterdir()}
        assert names == {"fabric.parquet", "observations.parquet", "QUESTIONS.md", "answer.csv"}
        run = RunDirectory(school / "answers" / student / "run")
        assert sorted(solution(school, student)["faulty"]) == sorted(run.summary["faulty_links"])
        seeds.add(run.config["seed"])
        everything = b"".join(path.read_bytes() for path in folder.iterdir())
        assert str(run.config["seed"]).encode() not in everything
        columns = pq.read_schema(folder / "fabric.parquet").names
        columns += pq.read_schema(folder / "observations.parquet").names
        assert not {"faulty", "rate", "fault_drops", "seed"} & set(columns)
    assert len(seeds) == 2, "another network for each"


def test_the_answers_of_the_truth_are_worth_everything(school: Path, canary: Canary) -> None:
    for student in STUDENTS:
        own = solution(school, student)
        numbers = [f"{number},{answer}," for number, answer in enumerate(own["answers"], 1)]
        hand_in(school, student, *numbers, *(f"4,{link},{r}" for link, r in own["faulty"].items()))
    for grade in grades(canary, school).values():
        assert grade["right"] == [True] * 3 and grade["f1"] == 1
        assert (grade["found"], grade["estimated"]) == (4, 4) and not grade["trouble"]
    screen = canary("class", "grade", str(school / "handouts")).out
    assert "student-01  yes  yes  yes      4       0      0  1.000  4 of 4" in screen


def test_the_questions_are_answered_from_the_handout_alone(school: Path) -> None:
    """Segments, rank and packets, computed by a student from the files."""
    import canary as package

    for student in STUDENTS:
        folder = school / "handouts" / student
        rows = pq.read_table(folder / "observations.parquet").to_pandas()
        segments = rows[rows.kind == "segment"]
        seen = {tuple(paths[0].tolist()) for paths in segments.paths}
        crosses = np.array([np.isin(np.arange(64), path) for path in seen])
        answers = [len(seen), np.linalg.matrix_rank(crosses)]
        assert answers == solution(school, student)["answers"][:2]
        verdict = package.localize(
            str(folder / "fabric.parquet"), str(folder / "observations.parquet"), "mle"
        )
        assert set(verdict.blamed) <= set(solution(school, student)["links"])


def test_what_is_wrong_is_counted(school: Path, canary: Canary) -> None:
    own = solution(school, "student-01")
    first, *_ = own["faulty"]
    healthy = next(link for link in own["links"] if link not in own["faulty"])
    rate = own["faulty"][first]
    hand_in(school, "student-01", "1,0,", f"4,{first},{rate * 2.1}", f"4,{healthy},0.5")
    grade = grades(canary, school)["student-01"]
    assert grade["right"] == [False] * 3
    assert (grade["found"], grade["missed"], grade["wrong"], grade["estimated"]) == (1, 3, 1, 0)
    assert grade["f1"] == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (b"", "its first line is not question,answer,loss"),
        (b"\xff\xfe\x00", "it is no CSV in UTF-8"),
        (b"question,answer,loss\n4,tor9->\x1b[2Jagg,\n", "there is no directed link"),
        (b"question,answer,loss\n9,1,\n", "line 2, '9,1,', is no answer to question"),
        (b"question,answer,loss\n1,1,\n1,2,\n", "question 1 has 2 answers"),
        (b"question,answer,loss\n" + b"1" * 2_000_000, "it is larger than 1 MiB"),
    ],
)
def test_a_file_of_a_student_is_data(
    content: bytes, trouble: str, school: Path, canary: Canary
) -> None:
    (school / "handouts" / "student-02" / "answer.csv").write_bytes(content)
    (school / "handouts" / "student-77").mkdir()
    found = grades(canary, school)
    assert trouble in found["student-02"]["trouble"]
    assert found["student-77"]["trouble"] == "there is no such student"
    screen = canary("class", "grade", str(school / "handouts"))
    assert screen.code == 0 and "\x1b" not in screen.out


def test_a_link_or_a_pipe_is_not_read(school: Path, canary: Canary) -> None:
    for student, make in ((STUDENTS[0], os.mkfifo), (STUDENTS[1], Path.unlink)):
        answer = school / "handouts" / student / "answer.csv"
        answer.unlink()
        if make is os.mkfifo:
            os.mkfifo(answer)
        else:
            answer.symlink_to(school / "answers" / student / "answer.json")
    found = grades(canary, school)
    assert "not a regular file" in found[STUDENTS[0]]["trouble"]
    assert "symbolic link" in found[STUDENTS[1]]["trouble"]


def test_the_same_seed_makes_the_same_class(school: Path, canary: Canary, tmp_path: Path) -> None:
    again = tmp_path / "again"
    words = ("EPOCHS=1", "LOAD=0.03", "FAULTS=4links:0.05..0.3", "SEED=7", f"--out={again}")
    made = json.loads(canary("class", "make", "--students=2", *words, "--json").out)
    assert made["path"] == str(again) and made["seed"] == 7
    assert made["handouts"] == f"{again}/handouts" and made["answers"] == f"{again}/answers"
    for folder in ("handouts", "answers"):
        for path in sorted((school / folder).rglob("*")):
            if path.is_file() and path.name not in ("summary.json", "manifest.json"):
                other = again / path.relative_to(school)
                assert _hash(path) == _hash(other), path


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--students=0",), "a class has 1 to"),
        ((f"--students={MOST_STUDENTS + 1}",), "a class has 1 to"),
        (("--students=2", "BACKEND=flow"), "a class needs BACKEND=virtual"),
        (("--students=2", "K=5"), "K"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    words: tuple[str, ...], answer: str, canary: Canary, tmp_path: Path
) -> None:
    result = canary("class", "make", f"--out={tmp_path / 'class'}", *words)
    assert result.code == 2 and answer in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "class").exists() and not list(tmp_path.glob(".partial*"))


def test_a_class_is_never_replaced(school: Path, canary: Canary) -> None:
    before = {path: path.stat().st_mtime_ns for path in school.rglob("*")}
    result = canary("class", "make", "--students=2", f"--out={school}")
    assert result.code == 2 and "choose another" in result.err
    assert before == {path: path.stat().st_mtime_ns for path in school.rglob("*")}


def test_answers_must_be_there(canary: Canary, tmp_path: Path) -> None:
    result = canary("class", "grade", str(tmp_path))
    assert result.code == 2 and "holds no answers" in result.err
    assert canary("class", "grade", str(tmp_path / "none")).code == 2
