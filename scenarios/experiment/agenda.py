"""What is due when, and the walk through it: one pass over the network's time.

It stops where something is due: a switch changes its epoch, a fault begins or ends, the controller
and 007's agents look after their work, an epoch's meters have drained and are read.
"""

from __future__ import annotations

from collections.abc import Callable

from scenarios.experiment.setup import Emulation
from testbed.control.epochs import set_parity
from testbed.network.network import Network

TICKS = 50
"""How often in an epoch the controller and 007's agents look after their work."""

Agenda = list[tuple[int, Callable[[], None]]]
"""Times in ns, ascending, and what is done then."""


def make_agenda(emulation: Emulation, end_epoch: Callable[[int], None]) -> Agenda:
    """All that is due in a run; ``end_epoch`` hears the number of each epoch that has drained."""
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
    """The controller brings back switches that restarted, and installs and removes rules; agents
    trace connections that lost packets."""
    tick_ns = emulation.inputs.epochs.length_ns // TICKS
    if emulation.network.now_ns >= now_ns + tick_ns and not last:
        return  # late in real time: the next tick is due too, and does it all
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
    """Let the network run, and do what is due in turn.

    Args:
        reached: Hears, before each is done, how many ns too late.
        progress: Hears, after each, the share of time that has passed.
    """
    end = agenda[-1][0]
    for at, action in agenda:
        network.run_until(at)
        reached(network.now_ns - at)
        action()
        progress(at / end)
