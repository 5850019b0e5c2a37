# SPDX-License-Identifier: Apache-2.0
"""The epoch loop: traffic flows, the meters are read, and the controller selects more flows.

The agenda of a run says what is due at which time. The network runs until the next entry is due: a
switch changes its epoch, a fault begins or ends, the controller and 007's agents do their periodic
work, or an epoch has drained and its meters are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import Inputs
from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import Epoch, History, Recorder, record
from scenarios.experiment.setup import Emulation, set_up
from testbed.control.switch import batch
from testbed.measurements.canary.meters import clear_hashpipe, collect, set_parity
from testbed.measurements.canary.minus_meters import MeterDump, Rules, minus_meter, segment_counts
from testbed.network.network import Network
from testbed.network.schedules import FOREVER
from testbed.network.virtual import LinkModel
from testbed.record.run_tables import registers

if TYPE_CHECKING:
    from scenarios.experiment.clock import RunClock


def run(
    emulation: Emulation,
    writer: Recorder,
    observer: Observer,
) -> None:
    """Run all epochs and write their record.

    Args:
        writer: Receives the registers after every epoch, and all other tables at the end. In real
            time it receives all tables after every epoch, so that an interruption loses only later
            epochs.
        observer: Receives the progress, and each epoch when its steps have run.
    """
    history, tcp = History(), emulation.tcp
    with batch(emulation.backend.controls):
        emulation.injector.start()
    emulation.selector.plan(*(np.zeros(len(emulation.segments), np.int64) for _ in range(2)))

    clock: RunClock | None = None

    def drained(number: int) -> None:
        """End an epoch, by its number from 0, once its packets have left the network, and report
        it."""
        if clock is not None:
            clock.settle()
        observer.epoch_ended(end_epoch(number, emulation, history, writer))

    agenda = make_agenda(emulation, drained)
    if tcp is not None:
        tcp.prepare()
    emulation.network.start()
    if tcp is not None:
        tcp.start()
    clock = _clock(emulation)
    follow(
        emulation.network,
        agenda,
        history.reached,
        lambda share: observer.progressed("emulation", share),
        (lambda gate_ns: None) if clock is None else clock.allow,
    )
    if clock is not None:
        history.slowdown = round(clock.release(), 3)
    if tcp is not None:
        tcp.stop()
        tcp.silence()
    emulation.network.drain()
    history.note_sent(emulation)
    record(emulation, history, writer, drained=True)


def _clock(emulation: Emulation) -> RunClock | None:
    """Return what holds the clock of a real network; None in virtual time, which waits anyway."""
    if not emulation.inputs.real_time:
        return None
    from scenarios.experiment.clock import RunClock
    from testbed.network.mininet import MininetNetwork

    assert isinstance(emulation.network, MininetNetwork)
    return RunClock(emulation.network)


def end_epoch(number: int, emulation: Emulation, history: History, writer: Recorder) -> Epoch:
    """Read the meters of an epoch whose packets have drained, and plan the next ones.

    The order is part of the protocol (Canary, sections III-D and III-E). The packets that were sent
    are noted first: those sent later must not count as lost, as real hosts continue to send while
    the meters are read. The DSM rule of a retired flow stays until the meters that it fed are read.
    The plan for the next epochs needs the minus meter of this one.

    Returns:
        The epoch with its minus meter: the packets that each flow lost on its segment.
    """
    selector, n, real_time = emulation.selector, len(emulation.segments), emulation.inputs.real_time
    history.note_sent(emulation)
    begin = time.perf_counter()
    dump = MeterDump(**collect(emulation.controls, number % 2))
    if real_time:
        history.collection_s.append(round(time.perf_counter() - begin, 3))
        gone = [switch for switch, control in emulation.controls.items() if control.lost]
        history.unread += [(number, switch) for switch in gone]
    emulation.events.epoch_read(number)
    rules = Rules(*selector.in_force())
    history.rules.append((number, rules))
    writer.table(registers(number), vars(dump))  # from which the epoch can be diagnosed again
    selector.finish_retiring()  # the last packets of these flows have left the network
    rerouted = [s for e, s in emulation.events.rerouted(number + 1) if e == number]
    meter = minus_meter(dump, emulation.decoder.decode, emulation.segments, rules, rerouted)
    packets, _ = segment_counts(meter, n)
    quiet = selector.retire_quiet()
    in_force, removed = (np.bincount(each, minlength=n) for each in (rules.segment, quiet))
    flows = in_force - removed  # those that are monitored, also where meters lost their counts
    selector.plan(packets, flows)
    history.note_selection(packets, flows, in_force, removed)
    clear_hashpipe(emulation.controls)
    if real_time:  # a run may be interrupted
        record(emulation, history, writer)
    return Epoch(number, emulation, meter)


TICKS = 50
"""Number of times in an epoch that the controller and 007's agents do their periodic work."""

Agenda = list[tuple[int, int, Callable[[], None]]]
"""In ascending order of time: a time in ns, by how many ns the action that is due then may be late
in real time, and the action."""

_LATE = 6  # a part of an epoch; the controller is too late with a third (`recording`)
_FLIP_LATE = 4  # a part of the drain time, which begins with the last change of epoch


def make_agenda(emulation: Emulation, drained: Callable[[int], None]) -> Agenda:
    """Return everything that is due in a run; ``drained`` is called with the number of each epoch
    whose packets have drained."""
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
        agenda.append((at, usual, lambda at=at: _tick(emulation, at, at == ticks[-1])))
    for epoch in range(inputs.epochs.number):
        for at, switch in emulation.clock.flips(epoch, emulation.monitors):
            control, parity = emulation.controls[switch], (epoch + 1) % 2
            agenda.append((at, of_flip, lambda c=control, p=parity: set_parity(c, p)))
        at = (epoch + 1) * period + emulation.backend.drain_ns
        agenda.append((at, usual, lambda e=epoch: drained(e)))
    agenda.sort(key=lambda item: item[0])
    return agenda


def _tick(emulation: Emulation, now_ns: int, last: bool) -> None:
    """Do the periodic work: the controller restores switches that restarted and installs and
    removes rules, and 007's agents trace connections that lost packets."""
    tick_ns = emulation.inputs.epochs.length_ns // TICKS
    if emulation.network.now_ns >= now_ns + tick_ns and not last:
        return  # late in real time: the next tick is due too, and does the same work
    emulation.events.reconcile()
    emulation.selector.poll(now_ns)
    tcp = emulation.tcp
    emulation.agents.poll(now_ns, None if tcp is None else tcp.retransmitted())


def gates(agenda: Agenda) -> list[int]:
    """Return, for each entry of an agenda, the latest time in ns that the clock may show until the
    entry has been carried out, ascending: no later one may be late by more than its allowance."""
    found, earliest = [], FOREVER
    for at, allowance, _ in reversed(agenda):
        earliest = min(earliest, at + allowance)
        found.append(earliest)
    return found[::-1]


def follow(
    network: Network,
    agenda: Agenda,
    reached: Callable[[int], None],
    progress: Callable[[float], None],
    allow: Callable[[int], None] = lambda gate_ns: None,
) -> None:
    """Run the network, and carry out the agenda's actions when they are due.

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


def emulate(
    inputs: Inputs,
    links: LinkModel,
    recorder: Recorder,
    logs: Path,
    observer: Observer,
) -> None:
    """Bring a network up, run all epochs on it, record them, and take it down.

    Args:
        inputs: The inputs of the run.
        links: Delay, rate and queues of the links of a network in virtual time.
        logs: The folder for the output of a real network's processes.
        observer: Receives the progress, and the events of the network.

    Raises:
        testbed.network.network.NetworkError: A real network cannot be brought up (one line).
        canary_softswitch.SoftSwitchError: There is no C compiler.
        ValueError: The faults or the traffic cannot be emulated (one line).
    """
    observer.progressed("switch program", 0.0)  # it is compiled once, then cached
    with open_backend(inputs, links, logs) as backend:
        emulation = set_up(inputs, backend, progress=observer.progressed)
        observer.network_up(emulation)
        run(emulation, recorder, observer)
        observer.network_ended()
