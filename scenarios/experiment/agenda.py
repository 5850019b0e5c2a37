"""The agenda of a run: what is due at which time, and the walk through it in one pass.

The network runs until the next entry is due: a switch changes its epoch, a fault begins or ends,
the controller and 007's agents do their periodic work, or an epoch has drained and its meters are
read.
"""

from __future__ import annotations

from collections.abc import Callable

from scenarios.experiment.setup import Emulation
from testbed.control.epochs import set_parity
from testbed.network.network import Network

TICKS = 50
"""Number of times in an epoch that the controller and 007's agents do their periodic work."""

Agenda = list[tuple[int, Callable[[], None]]]
"""Pairs of a time in ns and the action that is due then, in ascending order of time."""


def make_agenda(emulation: Emulation, end_epoch: Callable[[int], None]) -> Agenda:
    """Return everything that is due in a run; ``end_epoch`` is called with the number of each epoch
    whose packets have drained."""
    inputs, injector = emulation.inputs, emulation.injector
    period, tick_ns = inputs.epochs.length_ns, inputs.epochs.length_ns // TICKS
    agenda: Agenda = []
    end = inputs.epochs.number * period
    for seconds in injector.times():
        if 0 < seconds * 1e9 < end:
            agenda.append((round(seconds * 1e9), lambda s=seconds: injector.apply(s)))
    for event in inputs.events:
        agenda.append((event.time_ns, lambda e=event: emulation.events.carry_out(e)))
    ticks = range(tick_ns, end + 6 * tick_ns, tick_ns)
    for at in ticks:
        agenda.append((at, lambda at=at: _tick(emulation, at, at == ticks[-1])))
    for epoch in range(inputs.epochs.number):
        for at, switch in emulation.clock.flips(epoch, emulation.monitors):
            control, parity = emulation.controls[switch], (epoch + 1) % 2
            agenda.append((at, lambda c=control, p=parity: set_parity(c, p)))
        drained = (epoch + 1) * period + emulation.backend.drain_ns
        agenda.append((drained, lambda e=epoch: end_epoch(e)))
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


def follow(
    network: Network,
    agenda: Agenda,
    reached: Callable[[int], None],
    progress: Callable[[float], None],
) -> None:
    """Run the network, and carry out the agenda's actions when they are due.

    Args:
        reached: Called before each action with its delay in ns.
        progress: Called after each action with the share of the time that has passed, from 0 to 1.
    """
    end = agenda[-1][0]
    for at, action in agenda:
        network.run_until(at)
        reached(network.now_ns - at)
        action()
        progress(at / end)
