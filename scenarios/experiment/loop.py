"""The epoch loop: traffic flows, the meters are read, and the controller selects more flows.

`STEPS` run at the end of each epoch, when its packets have drained. Their order is part of the
protocol (Canary, sections III-D and III-E). The packets that were sent are noted first, because
real hosts continue to send while the meters are read. The DSM rule of a retired flow stays until
the meters that it fed are read. The plan for the next epochs needs the minus meter of this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from analysis.telemetry.minus_meters import MeterDump, Rules, minus_meter, segment_counts
from scenarios.experiment.agenda import follow, make_agenda
from scenarios.experiment.epoch import Epoch
from scenarios.experiment.observer import Observer
from scenarios.experiment.recording import History, Recorder, record, record_registers
from scenarios.experiment.setup import Emulation
from testbed.control.collection import clear_hashpipe, collect
from testbed.control.switch import batch


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

    def end_epoch(number: int) -> None:
        epoch = Epoch(number, emulation, history, writer)
        for step in STEPS:
            step(epoch)
        observer.epoch_ended(epoch)

    agenda = make_agenda(emulation, end_epoch)
    if tcp is not None:
        tcp.prepare()
    emulation.network.start()
    if tcp is not None:
        tcp.start()
    follow(
        emulation.network,
        agenda,
        history.reached,
        lambda share: observer.progressed("emulation", share),
    )
    if tcp is not None:
        tcp.stop()
    emulation.network.drain()
    history.note_sent(emulation)
    record(emulation, history, writer)


def note_sent(epoch: Epoch) -> None:
    """Note the packets that each source has sent by now; packets sent later must not count as lost,
    as they arrive while the meters are read."""
    epoch.history.note_sent(epoch.emulation)


def collect_meters(epoch: Epoch) -> None:
    """Read and clear the meters of the epoch's parity, and note the rules that were in force."""
    emulation, history = epoch.emulation, epoch.history
    begin = time.perf_counter()
    epoch.dump = MeterDump(**collect(emulation.controls, epoch.number % 2))
    if emulation.inputs.real_time:
        history.collection_s.append(round(time.perf_counter() - begin, 3))
        controls = emulation.controls.items()
        gone = [switch for switch, control in controls if control.lost]
        history.unread += [(epoch.number, switch) for switch in gone]
    emulation.events.epoch_read(epoch.number)
    epoch.rules = Rules(*emulation.selector.in_force())


def record_meters(epoch: Epoch) -> None:
    """Write the raw registers, from which the epoch can be diagnosed again."""
    epoch.history.rules.append((epoch.number, epoch.rules))
    record_registers(epoch.number, epoch.dump, epoch.writer)


def finish_retiring(epoch: Epoch) -> None:
    """Remove the DSM rules of flows that were retired an epoch ago: their last packets have left
    the network."""
    epoch.emulation.selector.finish_retiring()


def decode(epoch: Epoch) -> None:
    """Compute the minus meter: the packets that each flow lost on its segment."""
    emulation = epoch.emulation
    decode_path = emulation.decoder.decode
    epoch.meter = minus_meter(epoch.dump, decode_path, emulation.segments, epoch.rules)


def plan_and_retire(epoch: Epoch) -> None:
    """Select more flows on segments that were measured too little, and retire quiet flows."""
    emulation, n = epoch.emulation, len(epoch.emulation.segments)
    packets, _ = segment_counts(epoch.meter, n)
    flows = np.bincount(epoch.meter.segment, minlength=n)
    emulation.selector.plan(packets, flows)
    quiet = emulation.selector.retire_quiet()
    rules, removed = (np.bincount(each, minlength=n) for each in (epoch.rules.segment, quiet))
    epoch.history.note_selection(packets, flows, rules, removed)


def clear(epoch: Epoch) -> None:
    """Clear HashPipe, so that the next epoch finds its heavy hitters afresh."""
    clear_hashpipe(epoch.emulation.controls)


def record_so_far(epoch: Epoch) -> None:
    """In real time, write all tables of the finished epochs, as a run may be interrupted."""
    if epoch.emulation.inputs.real_time:
        record(epoch.emulation, epoch.history, epoch.writer)


STEPS: tuple[Callable[[Epoch], None], ...] = (
    note_sent,
    collect_meters,
    record_meters,
    finish_retiring,
    decode,
    plan_and_retire,
    clear,
    record_so_far,
)
