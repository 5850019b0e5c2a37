# SPDX-License-Identifier: Apache-2.0
"""Options: what make and the environment may say, what is ignored, help, completion, `--config`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main

from scenarios.command.cli import app
from scenarios.experiment.request import make_request
from scenarios.experiment.run import run_config
from scenarios.experiment.settings import SettingsError, described, make_settings
from tests.conftest import SMALL
from tests.scenarios.conftest import Canary, refused

ROOT = Path(__file__).parents[3]
SHORT = ("EPOCHS=1", "LOAD=0.002", "FAULTS=none", "--backend", "virtual")
LEAF_SPINE = ("--backend", "flow", "--topology", "leaf-spine:8:4")


# ---- names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["k=8"], ["k=8", "did you mean K?"]),
        (["KK=8"], ["KK=8", "did you mean K?"]),
        (["epoch_m=8"], ["did you mean EPOCH_MS?"]),
        (
            ["COLOUR=red"],
            [
                "COLOUR=red",
                "choose from SCENARIO, CONFIG, RUN, METHODS, PARAMETERS, FAULT_RATE, WATCH",
            ],
        ),
        (["SEEDS=1-3"], ["SEEDS=1-3", "did you mean SEED?"]),
        (["WATCH=2"], ["WATCH=2", "1 or 0"]),
        (["WATCH=1", "BACKEND=flow"], ["WATCH=1 needs packets"]),
        (["K=five"], ["--k", "integer"]),
        (["--K", "8"], ["--K", "--k"]),
        (["K"], ["unexpected extra argument"]),
    ],
)
def test_a_name_that_does_not_exist(canary: Canary, arguments: list[str], words: list[str]) -> None:
    refused(canary("run", *arguments), *words)


def test_load_may_be_auto_as_if_it_were_not_given(canary: Canary, tmp_path: Path) -> None:
    """From there a real network chooses it (`tests/scenarios/experiment/test_pace.py`)."""
    file = tmp_path / "mine.yaml"
    file.write_text("load: auto\nbackend: softswitch\n")
    for given, config in (({"load": "auto", "backend": "softswitch"}, None), ({}, file)):
        request = make_request("faulty_links", given, config)
        assert "load" not in request.named and request.settings().load == 0.6
    refused(canary("run", "LOAD=automatic"), "--load", "'automatic' is neither a number nor auto")
    words = ["run", "K=4", "LOAD=auto", "EPOCHS=1", "BACKEND=flow", "--methods", "canary-mle"]
    assert canary(*words, f"RUN={tmp_path / 'run'}").code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["load"] == 0.06


def test_words_are_options(canary: Canary, tmp_path: Path) -> None:
    result = canary("run", *SHORT, "SEED=5", f"RUN={tmp_path}/a=b", "--traffic", "storage")
    assert result.code == 0, result.err
    config = json.loads((tmp_path / "a=b" / "config.json").read_text())
    assert (config["seed"], config["epochs"], config["load"]) == (5, 1, 0.002)
    # the value of an option is no word
    refused(canary("run", *SHORT, "--traffic", "K=8"), "TRAFFIC=K=8 is unknown")
    refused(canary("plan", "K=5"), "K=5 is not a fat-tree")


@pytest.mark.parametrize(("command", "nearest"), [("scenario", "canary run"), ("shwo", "show")])
def test_a_command_that_does_not_exist(canary: Canary, command: str, nearest: str) -> None:
    refused(canary(command), f"no command {command}", nearest)


# ---- the environment -------------------------------------------------------------------------


def test_the_environment_sets_what_is_named_so(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CANARY_SEED": "7", "CANARY_EPOCHS": "3", "SEED": "8", "K": "5"}.items():
        monkeypatch.setenv(name, value)
    result = canary("run", *SHORT, "--run", str(tmp_path / "run"))
    assert result.code == 0, result.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["seed"], config["k"]) == (7, 4)
    assert config["epochs"] == 1, "the command line wins"
    lines = [line for line in result.out.splitlines() if line.startswith("from the")]
    assert lines == ["from the environment: SEED=7"]


def test_a_wrong_name_or_value_in_the_environment(
    canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_KK", "8")
    refused(canary("run"), "CANARY_KK", "did you mean CANARY_K?")
    refused(canary("compare"), "CANARY_KK")
    assert canary("plan", "-h").code == 0, "it takes nothing from the environment"
    monkeypatch.delenv("CANARY_KK")
    monkeypatch.setenv("CANARY_K", "four")
    refused(canary("run"), "CANARY_K", "integer")


# ---- what is ignored -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"backend": "flow", "topology": "leaf-spine:8:4", "k": 8}, "K=8 has no effect with TOP"),
        ({"backend": "flow", "topology": "leaf-spine:8:4", "k": 4}, "K=4 has no effect"),
        ({"traffic": "x.pcap:fit", "load": 0.3}, "LOAD=0.3 has no effect with a capture"),
        ({"alpha": 0, "beta": 0, "delta": 3}, "DELTA=3 has no effect with ALPHA=0 and BETA=0"),
    ],
)
def test_an_option_without_effect_is_refused(given: dict, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as error:
        make_settings(given)
    assert "leave it out" in str(error.value)
    asked = dict(given)
    last = asked.popitem()
    assert make_settings(asked, dict([last])), "what stands by itself is no request"


# ---- help, version, completion ---------------------------------------------------------------


def test_canary_alone_prints_help(canary: Canary) -> None:
    alone, short, long = canary(), canary("-h"), canary("--help")
    assert alone.code == 0 and not alone.err
    assert alone.out == short.out == long.out
    assert "Commands:" in alone.out
    assert "..." not in alone.out.partition("Commands:")[2], "a command's help is cut off"


def test_the_version(canary: Canary) -> None:
    result = canary("--version")
    assert result.code == 0 and re.fullmatch(
        r"canary \d+\.\d+\.\d+, record version \d+\n", result.out
    )


COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_its_default_and_bounds(canary: Canary, command: str) -> None:
    result = canary(command, "-h")
    assert result.code == 0
    text = " ".join(result.out.partition("Options:")[2].split())
    options = re.findall(r" (--[a-z0-9-]+) (<\w+>) (.*?)(?= --[a-z0-9-]+ | -h, --help)", f" {text}")
    for name, kind, meaning in options:
        brackets = re.findall(r"\[(?:default: [^\]]+|required)\]", meaning.replace("[:", "(:"))
        assert brackets, f"{name}: {meaning}"
        if kind in ("<int>", "<float>"):
            assert re.search(r"\d to \d|from \d", brackets[-1]), f"{name}: {meaning}"
    assert max(map(len, result.out.splitlines())) <= 80
    if command == "run":
        settings = {"--" + setting.name.replace("_", "-") for setting in described()}
        assert settings <= {name for name, _, _ in options}


def test_shells_complete(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(words: str) -> list[str]:
        monkeypatch.setenv("_CANARY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return canary().out.split()

    assert completed("canary sh") == ["show", "shell"]
    assert completed("canary run --backend ") == ["virtual", "flow", "softswitch", "bmv2", "auto"]
    assert "--epoch-ms" in completed("canary run --ep")
    assert {"flap", "healthy"} <= set(completed("canary run --scenario "))


# ---- make ------------------------------------------------------------------------------------


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS")  # of the make that runs the tests
    clean = {name: value for name, value in os.environ.items() if name not in own}
    return subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *arguments],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )


pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["test", "KK=8"], "COVERAGE"), (["lint", "K=8"], "none"), (["show", "run=x"], "RUN")],
)
def test_make_refuses_what_a_target_does_not_take(arguments: list[str], word: str) -> None:
    done = make(*arguments)
    assert done.returncode == 2 and not done.stdout
    assert arguments[1].split("=")[0] + "=" in done.stderr and word in done.stderr
    assert done.stderr.count("\n") == 1


def test_make_takes_nothing_from_the_environment() -> None:
    last = make("show", RUN="runs/x", COVERAGE="1").stdout.splitlines()[-1]
    assert last.endswith("canary show -- ''")
    assert make("scenario", K="8", RUN="here").stdout.splitlines()[-1].endswith("canary run ")
    assert make("show", "RUN=x", "TRUST=1").stdout.splitlines()[-1].endswith("show --trust -- 'x'")
    assert "--cov" not in make("test", COVERAGE="1").stdout
    assert "--cov" in make("test", "COVERAGE=1").stdout


# ---- a file of settings ----------------------------------------------------------------------


def test_settings_from_a_file(canary: Canary, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("scenario: healthy\nk: 4\nepochs: 1\nload: 0.002\nbackend: virtual\nseed: 3\n")
    result = canary("run", "--config", str(file), "SEED=4", f"RUN={tmp_path}/run")
    assert result.code == 0, result.err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["scenario"], config["epochs"], config["seed"]) == ("healthy", 1, 4)


def test_a_run_again_from_its_config(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    recorded = run_config(SMALL.as_dict() | {"scenario": "flap"}) | {"record_version": 1}
    file.write_text(json.dumps(recorded))
    for place in (file, tmp_path):
        request = make_request(None, {}, place)
        assert (request.name, request.settings()) == ("flap", SMALL)
    assert make_request("healthy", {"seed": 9}, file).settings().seed == 9
    # of another version: what exists is taken
    file.write_text(json.dumps(recorded | {"record_version": 99, "colour": "red"}))
    assert make_request(None, {}, file).settings() == SMALL


def test_a_run_again_on_another_backend(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    real = make_settings({"backend": "softswitch", "seed": 5, "epochs": 3})
    file.write_text(
        json.dumps(run_config(real.as_dict() | {"scenario": "flap"}) | {"record_version": 1})
    )
    again = make_request(None, {"backend": "virtual"}, file).settings()
    assert again == make_settings({"backend": "virtual", "seed": 5, "epochs": 3})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kk: 8\n", ["kk", "did you mean k?"]),
        ("k: 8\nk: 4\n", ["line 2: the key 'k' is given twice"]),
        ("k: [8]\n", ["k: one value"]),
        ("k: true\n", ["k: one value"]),
        ("k: five\n", ["K=five", "integer"]),
        ("k: 8\n  seed: 1\n", ["line 2", "YAML"]),
        ("- 1\n", ["no settings"]),
        ("", ["no settings"]),
        ("scenario: nope\n", ["nope", "faulty_links"]),
        ('{"record_version": 1, "scenario": "mine", "k": 4}', ["'mine'", "SCENARIO="]),
        ("backend: flow\ntopology: leaf-spine:8:4\nk: 8\n", ["K=8 has no effect"]),
    ],
)
def test_a_wrong_file_is_one_line(
    canary: Canary, tmp_path: Path, text: str, words: list[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    refused(canary("run", "--config", str(file)), *words)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    refused(canary("run", "--config", str(tmp_path / "bytes.yaml")), "bytes.yaml")
    refused(canary("run", "--config", str(tmp_path / "none.yaml")), "none.yaml")
