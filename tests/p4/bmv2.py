# SPDX-License-Identifier: Apache-2.0
"""A real simple_switch process: packets over its nanomsg socket, control over its own CLI."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from canary_softswitch import Switch
from tests.patience import PATIENCE_S
from tests.programs import COMMAND_LINE

_PACKET_IN, _PACKET_OUT = 3, 4
_PAIR, _SUBSCRIBE = 16, 33


class _Nanomsg:
    """A nanomsg socket over a Unix socket: an 8-byte greeting, then length-prefixed messages."""

    def __init__(self, path: Path, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(path))
        self._socket.sendall(b"\0SP\0" + struct.pack(">HH", protocol, 0))
        self._socket.settimeout(5)
        self._buffer = b""
        assert self._take(8, 5)[:4] == b"\0SP\0"

    def _take(self, n: int, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        while len(self._buffer) < n:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionError("simple_switch closed its socket")
            self._buffer += more
        taken, self._buffer = self._buffer[:n], self._buffer[n:]
        return taken

    def send(self, message: bytes) -> None:
        self._socket.sendall(b"\x01" + struct.pack(">Q", len(message)) + message)

    def receive(self, timeout: float) -> bytes | None:
        """The next message, or None when none comes in time."""
        try:
            length = struct.unpack(">Q", self._take(9, timeout)[1:])[0]
        except TimeoutError:
            return None
        return self._take(length, PATIENCE_S)

    def close(self) -> None:
        self._socket.close()


def _own_network() -> list[str]:
    """Command prefix for a network of its own, where only its own loopback can reach it.

    simple_switch listens for control on every address and has no option for less.
    """
    prefix = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"']
    try:
        works = subprocess.run([*prefix, "sh", "true"], capture_output=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [*prefix, "sh"] if works.returncode == 0 else []


class SimpleSwitch:
    """One running simple_switch. Use as a context manager."""

    def __init__(self, program: Path, work: Path) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self._port = s.getsockname()[1]
        prefix = _own_network()
        packets, events = work / "packets", work / "events"
        self._log = (work / "log").open("w")
        self._process = subprocess.Popen(
            [
                *prefix,
                "simple_switch",
                *("--packet-in", f"ipc://{packets}"),
                *("--thrift-port", str(self._port)),
                *("--notifications-addr", f"ipc://{events}"),
                str(program),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._enter = (
            ["nsenter", "-t", str(self._process.pid), "-U", "-n", "--preserve-credentials"]
            if prefix
            else []
        )
        try:
            self._packets = self._connect(packets, _PAIR)
            self._events = self._connect(events, _SUBSCRIBE)
            self._wait_for_control()
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> SimpleSwitch:
        return self

    def __exit__(self, *_: object) -> None:
        self._packets.close()
        self._events.close()
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _connect(self, path: Path, protocol: int) -> _Nanomsg:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return _Nanomsg(path, protocol)
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    def _wait_for_control(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while "Obtaining JSON" not in self.control([]):
            assert time.monotonic() < deadline, "simple_switch does not answer"
            time.sleep(0.1)

    def control(self, commands: Sequence[str]) -> str:
        """Run commands of simple_switch_CLI; returns what it prints."""
        result = subprocess.run(
            [
                *self._enter,
                *COMMAND_LINE,
                *("--thrift-port", str(self._port)),
            ],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return result.stdout + result.stderr

    def configure(self, commands: Sequence[str]) -> list[int]:
        """Run commands that must succeed; returns the handles they give out, in order."""
        out = self.control(commands)
        wrong = re.findall(r"^.*(?:Error|Invalid|Unknown|Traceback).*$", out, re.MULTILINE)
        assert not wrong, wrong[:3]
        return [int(n) for n in re.findall(r"added with handle (\d+)", out)]

    def registers(self, names: Sequence[str]) -> dict[str, list[int]]:
        out = self.control([f"register_read {name}" for name in names])
        found = re.findall(r"(\S+)= ([\d, ]+)$", out, re.MULTILINE)
        return {name: [int(n) for n in values.split(",")] for name, values in found}

    def counters(self, places: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
        """(packets, bytes) of counters by name and index or entry handle."""
        out = self.control([f"counter_read {name} {index}" for name, index in places])
        found = re.findall(r"\((\d+) bytes, (\d+) packets\)", out)
        assert len(found) == len(places), out[-500:]
        return [(int(packets), int(size)) for size, packets in found]

    def send(self, port: int, data: bytes) -> None:
        self._packets.send(struct.pack("<iii", _PACKET_IN, port, len(data)) + data)

    def receive(self, timeout: float) -> tuple[int, bytes] | None:
        """The next packet that leaves, or None."""
        message = self._packets.receive(timeout)
        if message is None:
            return None
        kind, port, length = struct.unpack_from("<iii", message)
        assert kind == _PACKET_OUT
        return port, message[12 : 12 + length]

    def learned(self, sample: int, expected: int) -> list[bytes]:
        """All digest samples so far, ``sample`` bytes each; ``expected`` of them are waited for."""
        samples: list[bytes] = []
        while True:
            message = self._events.receive(PATIENCE_S if len(samples) < expected else 0.5)
            if message is None:
                break
            if message[:4] == b"LEA|":
                body = message[32:]
                samples += [body[i : i + sample] for i in range(0, len(body), sample)]
        return samples


class Mirror:
    """A `SwitchControl` that sets up a soft switch and notes the same as CLI commands."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.commands: list[str] = []
        self.entries: list[tuple[str, int]] = []  # table and handle, in the order of the commands

    def table(self, name: str) -> MirrorTable:
        return MirrorTable(self, name)

    def action_profile(self, name: str) -> MirrorProfile:
        return MirrorProfile(self, name)

    def register(self, name: str) -> Any:
        return self.switch.register(name)

    def digests(self, ack: bool = True) -> dict[str, Any]:
        return self.switch.digests(ack)


_SEPARATOR = {"lpm": "/", "ternary": "&&&", "range": "->"}
_TOP = 1_000_000  # simple_switch's smallest priority wins


class MirrorTable:
    def __init__(self, mirror: Mirror, name: str) -> None:
        self._mirror, self._name = mirror, name
        self._table = mirror.switch.table(name)

    def _match(self, match: Sequence[Any]) -> str:
        kinds = [key.match for key in self._table.definition.key]
        return " ".join(self._key(k, m) for k, m in zip(kinds, match, strict=True))

    @staticmethod
    def _key(kind: str, match: Any) -> str:
        if kind == "exact":
            return hex(match)
        second = str(match[1]) if kind == "lpm" else hex(match[1])
        return hex(match[0]) + _SEPARATOR[kind] + second

    def _note(self, command: str, handle: int) -> int:
        self._mirror.commands.append(command)
        self._mirror.entries.append((self._name, handle))
        return handle

    def add(
        self,
        match: Sequence[Any],
        action: str,
        params: Sequence[int] = (),
        priority: int | None = None,
    ) -> int:
        handle = self._table.add(match, action, params, priority)
        data = " ".join(map(hex, params))
        rank = "" if priority is None else f" {_TOP - priority}"
        return self._note(
            f"table_add {self._name} {action} {self._match(match)} => {data}{rank}", handle
        )

    def delete(self, handle: int) -> None:
        raise NotImplementedError

    def counters(self, handles: Sequence[int]) -> npt.NDArray[np.uint64]:
        return self._table.counters(handles)

    def set_default(self, action: str, params: Sequence[int] = ()) -> None:
        self._table.set_default(action, params)
        data = " ".join(map(hex, params))
        self._mirror.commands.append(f"table_set_default {self._name} {action} {data}")

    def add_group_entry(self, match: Sequence[Any], group: int, priority: int | None = None) -> int:
        handle = self._table.add_group_entry(match, group, priority)
        return self._note(
            f"table_indirect_add_with_group {self._name} {self._match(match)} => {group}", handle
        )


class MirrorProfile:
    def __init__(self, mirror: Mirror, name: str) -> None:
        self._commands, self._name = mirror.commands, name
        self._profile = mirror.switch.action_profile(name)

    def add_member(self, action: str, params: Sequence[int] = ()) -> int:
        data = " ".join(map(hex, params))
        self._commands.append(f"act_prof_create_member {self._name} {action} {data}")
        return self._profile.add_member(action, params)

    def add_group(self, members: Sequence[int]) -> int:
        group = self._profile.add_group(members)
        self._commands.append(f"act_prof_create_group {self._name}")
        self._commands += [
            f"act_prof_add_member_to_group {self._name} {member} {group}" for member in members
        ]
        return group

    def modify_group(self, group: int, members: Sequence[int]) -> None:
        raise NotImplementedError
