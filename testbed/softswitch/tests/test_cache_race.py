# SPDX-License-Identifier: Apache-2.0
"""Another user exchanges the folders of the compile cache while a library is made and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from canary_softswitch.compiler import build
from canary_softswitch.errors import SoftSwitchError

VICTIM, ATTACKER = 12345, 12346
CODE = "int answer(void) { return 42; }\n"
EVIL = "int answer(void) { return 666; }\n"
LEVELS = ("", "b", "b/canary-softswitch")


def as_user(uid: int, do: Callable[[], int]) -> int:
    """Start a copy of this process as a user; return its process ID. Its exit code is ``do()``."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        code = do()
    finally:
        os._exit(code)


def victim(places: list[Path]) -> int:
    """Load a library once for each place of a cache; return how often it was another's (0-90)."""
    os.umask(0)
    won = loaded = 0
    for place in places:
        os.environ["XDG_CACHE_HOME"] = str(place / "b")
        with suppress(SoftSwitchError):
            won += build.load_library(CODE, {"answer": (ctypes.c_int,)}).answer() != 42
            loaded += 1
    if loaded < len(places) // 3:  # the cache of one's own is there in spite of the attacks
        return 98
    return min(won, 90)


def attacker(places: list[Path], evil: Path, own: Path) -> int:
    """Put copies of a folder in the way of each level of each cache, as fast as can be."""
    n = 0
    while True:
        for place in places:
            for level in LEVELS:
                at, n = place / level, n + 1
                away, ready = own / f"away{n}", own / f"ready{n}"
                with suppress(OSError):
                    at.rename(away)
                with suppress(OSError):  # now it is absent, or was from the start
                    if not at.exists():
                        shutil.copytree(evil / level, ready)
                        ready.rename(at)
                shutil.rmtree(ready, ignore_errors=True)


@pytest.mark.root
@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")
def test_another_user_races_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        own = top / "own"
        own.mkdir()
        os.chown(own, ATTACKER, ATTACKER)

        # what the attacker puts there: a library and its hash, under the name that is looked for
        monkeypatch.setenv("XDG_CACHE_HOME", str(top / "first" / "b"))
        path, opened = build._build(CODE, ())
        opened.close()
        evil = top / "evil" / "b" / "canary-softswitch"
        evil.mkdir(parents=True)
        library, source = evil / path.name, top / "evil.c"
        source.write_text(EVIL)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        library.with_suffix(".sha256").write_text(digest)

        homes = {"home": 0o755, "sticky": 0o1777, "shared": 0o777}
        for home, mode in homes.items():
            (top / home).mkdir()
            os.chown(top / home, VICTIM, VICTIM)
            (top / home).chmod(mode)
        places = [top / list(homes)[i % 3] / str(i) for i in range(1000)]
        ends = [places[i : i + 40] for i in range(0, len(places), 40)]
        won = []
        for part in ends:
            attacking = as_user(ATTACKER, lambda part=part: attacker(part, top / "evil", own))
            try:
                attacked = as_user(VICTIM, lambda part=part: victim(part))
                won.append(os.waitstatus_to_exitcode(os.waitpid(attacked, 0)[1]))
            finally:
                os.kill(attacking, signal.SIGKILL)
                os.waitpid(attacking, 0)
        assert won == [0] * len(ends)
