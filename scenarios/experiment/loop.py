# SPDX-License-Identifier: Apache-2.0
"""The epoch loop: traffic flows, and what each epoch measured is read.

The agenda of a run says what is due at which time. The network runs until the next entry is due: a
switch changes its epoch, a fault begins or ends, the controller and the measurements do their
periodic work, or an epoch has drained and what it measured is read.

A batch run has one `Session` for all its epochs. A network at the prompt rests between epochs, and
has one for each: it is resumed, runs and ends as the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.experiment.backends import open_backend
from scenarios.experiment.in_memory import Memory
from scenarios.experiment.inputs import Inputs
from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import Epoch, History, HostCounts, Recorder, record
from scenarios.experiment.setup import Emulation, set_up
from testbed.control.switch import batch
from testbed.network.network import Network
from testbed.network.schedules import FOREVER
from testbed.record.tables import Columns


def run(
    emulation: Emulation,
    writer: Recorder,
    observer: Observer,
) -> None:
    """Run all epochs and write their record.

    Args:
        writer: Receives the tables of every epoch, and all other tables at the end. In real time it
            receives all tables after every epoch, so that an interruption loses only later epochs.
        observer: Receives the progress, and each epoch when its steps have run.
    """
    session = Session(emulation, writer, observer)
    session.start()
    while (epoch := session.epoch()) is not None:
        observer.epoch_ended(epoch)
    session.end()


@dataclass(frozen=True)
class _Part:
    """What hosts had counted before an epoch, and the tables of the epoch."""

    before: HostCounts
    tables: Mapping[str, Columns]


class Session:
    """Epochs of a network of packets, one after another.

    Args:
        emulation: The network.
        writer, observer: See `run`.
        first: The number of the first epoch, from 0. If it is not the first of the network, hosts
            are idle.
    """

    def __init__(
        self, emulation: Emulation, writer: Recorder, observer: Observer, first: int = 0
    ) -> None:
        self._emulation, self._writer, self._observer = emulation, writer, observer
        if emulation.run.idle:
            self._history = History(first=first, before=HostCounts.now(emulation))
        else:  # in real time a run may be interrupted
            self._history = History(every_epoch=emulation.inputs.network.real_time)
        self._last: deque[_Part] = deque(maxlen=observer.window)
        self._before: HostCounts | None = None
        self._clock = emulation.backend.clock
        self._ended: Epoch | None = None
        self._steps: Iterator[None] = iter(())

    def start(self) -> None:
        """Inject the faults, prepare the switches, and let hosts send."""
        emulation, tcp = self._emulation, self._emulation.tcp
        with batch(emulation.backend.controls):
            emulation.injector.start()
        for each in emulation.measured.values():
            each.begin()
        agenda = make_agenda(emulation, self._drained)
        if tcp is not None:
            tcp.prepare()
        emulation.network.start()
        if tcp is not None:
            tcp.start()
        if self._last.maxlen:
            self._before = HostCounts.now(emulation)
        self._begin(agenda)

    def resume(self) -> None:
        """Let idle hosts send the packets of a run again, on a network that is up and measured."""
        emulation, network, first = self._emulation, self._emulation.network, self._history.first
        emulation.events.forget_switched_off()
        for each in emulation.measured.values():
            each.forget(first)
        start_ns = network.now_ns + _SOON_NS
        for each in emulation.sending:
            network.feed(each.number, each.frames.later(start_ns))
        self._begin(make_agenda(emulation, self._drained, first, start_ns))

    def _begin(self, agenda: Agenda) -> None:
        """Start the clock, and carry out an agenda from now on."""
        self._clock.start()
        self._steps = steps(
            self._emulation.network,
            agenda,
            self._history.reached,
            lambda share: self._observer.progressed("emulation", share),
            self._clock.allow,
        )

    def epoch(self) -> Epoch | None:
        """Run until the packets of the next epoch have drained and its steps have run; return it,
        or None after the last."""
        self._ended = None
        for _ in self._steps:
            if self._ended is not None:
                break
        return self._ended

    def abandon(self) -> None:
        """Leave an epoch of a network that rests between epochs, after an interruption: switches
        count in the next one."""
        with batch(self._emulation.backend.controls):
            for each in self._emulation.measured.values():
                for _, change in each.changes(self._history.first):
                    change()
        self._clock.release()

    def _drained(self, number: int) -> None:
        """End an epoch, by its number from 0, once its packets have left the network. Real hosts
        send the next ones while switches are read, so what they counted is noted first."""
        emulation, history = self._emulation, self._history
        self._clock.settle(lambda: history.note(emulation))
        tables: dict[str, Columns] = {}
        memory, before = None, self._before
        epoch = end_epoch(number, emulation, history, self._writer, tables)
        if before is not None:
            self._last.append(_Part(before, tables))
            memory = self._record_last(number)
            self._before = history.counted
        self._ended = replace(epoch, memory=memory)

    def _record_last(self, number: int) -> Memory:
        """Return the record of the epochs up to this one that methods are asked about."""
        memory, first = Memory(), number + 1 - len(self._last)
        for nth, part in enumerate(self._last):
            for name, columns in part.tables.items():
                memory.table(f"{name}/epoch-{nth:03d}", columns)
        before, counted = self._last[0].before, self._history.counted
        own = History(first=first, before=before, counted=counted, epochs=number + 1)
        record(self._emulation, own, memory)
        return memory

    def end(self) -> None:
        """Wait until no packet is in the network, and write the record."""
        emulation, history, tcp = self._emulation, self._history, self._emulation.tcp
        history.slowdown = round(self._clock.release(), 3)
        if tcp is not None:
            tcp.stop()
            tcp.silence()
        emulation.network.drain()
        history.note(emulation)
        record(emulation, history, self._writer, drained=True)


def end_epoch(
    number: int,
    emulation: Emulation,
    history: History,
    writer: Recorder,
    tables: dict[str, Columns],
) -> Epoch:
    """Read what an epoch measured, whose packets have drained, and return it. The tables of the
    epoch are put into ``tables``, too."""
    rerouted = [s for e, s in emulation.events.rerouted(number + 1) if e == number]

    def write(name: str, columns: Columns) -> None:
        """Write a table of the epoch."""
        writer.table(f"{name}/epoch-{number - history.first:03d}", columns)
        tables[name] = columns

    found = {
        name: each.end_epoch(number, rerouted, write) for name, each in emulation.measured.items()
    }
    emulation.events.epoch_read(number)
    history.epochs = number + 1
    if history.every_epoch:
        record(emulation, history, writer)
    return Epoch(number, emulation, found)


TICKS = 50
"""Number of times in an epoch that the controller and the measurements do their periodic work."""

Agenda = list[tuple[int, int, Callable[[], None]]]
"""In ascending order of time: a time in ns, by how many ns the action that is due then may be late
in real time, and the action."""

_SOON_NS = 50_000_000  # within which the packets of a run are fed to hosts
_LATE = 6  # a part of an epoch; the controller is too late with a third (`recording`)
_FLIP_LATE = 4  # a part of the drain time, which begins with the last change of epoch


def make_agenda(
    emulation: Emulation, drained: Callable[[int], None], first: int = 0, start_ns: int = 0
) -> Agenda:
    """Return everything that is due in a run.

    Args:
        drained: Called with the number of each epoch whose packets have drained.
        first: The number of its first epoch.
        start_ns: When that begins, in ns of the network's clock.
    """
    inputs, injector = emulation.inputs, emulation.injector
    period, tick_ns = inputs.epochs.length_ns, inputs.epochs.length_ns // TICKS
    usual, of_flip = period // _LATE, emulation.backend.drain_ns // _FLIP_LATE
    agenda: Agenda = []
    end = inputs.epochs.number * period
    for seconds in injector.times():
        if 0 < seconds * 1e9 < end:
            agenda.append((round(seconds * 1e9), usual, lambda s=seconds: injector.apply(s)))
    for event in inputs.events:
        agenda.append((event.time_ns, usual, lambda e=event: emulation.events.carry_out(e)))
    ticks = range(tick_ns, end + 6 * tick_ns, tick_ns)
    for at in ticks:
        agenda.append((at, usual, lambda at=at: _tick(emulation, at + start_ns, at == ticks[-1])))
    for nth in range(inputs.epochs.number):
        for each in emulation.measured.values():
            changes = each.changes(first + nth)
            agenda += [(at - first * period, of_flip, action) for at, action in changes]
        at = (nth + 1) * period + emulation.backend.drain_ns
        agenda.append((at, usual, lambda e=first + nth: drained(e)))
    agenda.sort(key=lambda item: item[0])
    return [(at + start_ns, late, action) for at, late, action in agenda]


def _tick(emulation: Emulation, now_ns: int, last: bool) -> None:
    """Do the periodic work: the controller restores switches that restarted, which at the prompt is
    done before each command, and each measurement does its own, such as installing rules or tracing
    connections."""
    tick_ns = emulation.inputs.epochs.length_ns // TICKS
    if emulation.network.now_ns >= now_ns + tick_ns and not last:
        return  # late in real time: the next tick is due too, and does the same work
    if not emulation.run.idle:
        emulation.events.reconcile()
    retransmitted = None if emulation.tcp is None else emulation.tcp.retransmitted()
    for each in emulation.measured.values():
        each.poll(now_ns, retransmitted)


def gates(agenda: Agenda) -> list[int]:
    """Return, for each entry of an agenda, the latest time in ns that the clock may show until the
    entry has been carried out, ascending: no later one may be late by more than its allowance."""
    found, earliest = [], FOREVER
    for at, allowance, _ in reversed(agenda):
        earliest = min(earliest, at + allowance)
        found.append(earliest)
    return found[::-1]


def steps(
    network: Network,
    agenda: Agenda,
    reached: Callable[[int], None],
    progress: Callable[[float], None],
    allow: Callable[[int], None] = lambda gate_ns: None,
) -> Iterator[None]:
    """Run the network, and carry out the agenda's actions when they are due; yield after each.

    Args:
        reached: Called before each action with its delay in ns.
        progress: Called after each action with the share of the time that has passed, from 0 to 1.
        allow: Called before each action with the latest time in ns that the network's clock may
            show until the action is carried out, see `gates`.
    """
    end = agenda[-1][0]
    for (at, _, action), gate_ns in zip(agenda, gates(agenda), strict=True):
        allow(gate_ns)
        network.run_until(at)
        reached(network.now_ns - at)
        action()
        progress(at / end)
        yield


def emulate(inputs: Inputs, recorder: Recorder, logs: Path, observer: Observer) -> None:
    """Bring a network up, run all epochs on it, record them, and take it down.

    Args:
        inputs: The inputs of the run.
        logs: The folder for the output of a real network's processes.
        observer: Receives the progress, and the events of the network.

    Raises:
        testbed.network.network.NetworkError: A real network cannot be brought up (one line).
        canary_softswitch.SoftSwitchError: There is no C compiler.
        ValueError: The faults or the traffic cannot be emulated (one line).
    """
    observer.progressed("switch program", 0.0)  # it is compiled once, then cached
    with open_backend(inputs, logs) as backend:
        emulation = set_up(inputs, backend, progress=observer.progressed)
        observer.network_up(emulation)
        run(emulation, recorder, observer)
        observer.network_ended()
