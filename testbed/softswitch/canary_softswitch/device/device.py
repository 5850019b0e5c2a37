# SPDX-License-Identifier: Apache-2.0
"""A device of a switch process: its ports, its pipeline and its controllers."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from canary_softswitch.compiler.bmv2_program import DROP_PORT
from canary_softswitch.device.config import PipelineConfig
from canary_softswitch.device.controllers import Arbitration
from canary_softswitch.device.messages import (
    FAILED_PRECONDITION,
    INTERNAL,
    P4Error,
    p4runtime_pb2,
)
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import PACKET, Ports

PAUSE = 0.001  # between two looks at the digests


def defect(e: Exception) -> P4Error:
    """Return the INTERNAL error that a client is sent; the traceback goes to stderr."""
    traceback.print_exception(e)
    return P4Error(INTERNAL, f"{type(e).__name__}: {e}".splitlines()[0])


class Device:
    """One switch: its ports, its controllers, and the pipeline in service, if there is one."""

    def __init__(
        self,
        device_id: int,
        ports: Ports,
        seed: int,
        drop_port: int = DROP_PORT,
        swap: bool = True,
        most_groups: int | None = None,
    ) -> None:
        self.id = device_id
        self.ports = ports
        self.drop_port = drop_port
        self.swap = swap  # whether a program may follow another
        self._seed = seed
        self._most_groups = most_groups
        self.arbitration = Arbitration(device_id)
        self.lock = threading.RLock()  # of everything below
        self.pipeline: Pipeline | None = None
        self.saved: PipelineConfig | None = None
        self._failure = ""  # why the program that was started last does not run
        self._started = threading.Event()  # no program is still on its way
        self._started.set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve_controller, name="events", daemon=True)
        self._thread.start()

    def pipeline_of(self, config: PipelineConfig) -> Pipeline:
        """Return a new pipeline for this device, which is not in service."""
        pipeline = Pipeline(config, self.ports, self._seed)
        pipeline.replication.most_groups = self._most_groups
        return pipeline

    def commit(self, pipeline: Pipeline) -> None:
        """Put a pipeline into service; raise ``P4Error`` if --disable-swap forbids it."""
        with self.lock:
            self.check_swap()
            self.ports.attach(pipeline.switch)
            self.pipeline, self.saved = pipeline, None

    def check_swap(self) -> None:
        """Raise ``P4Error`` if a program runs and --disable-swap forbids that another follows."""
        if self.pipeline is not None and not self.swap:
            raise P4Error(
                FAILED_PRECONDITION, "the program cannot be replaced, because of --disable-swap"
            )

    def replace(self, pipeline: Pipeline) -> None:
        """Replace the pipeline in service by another one with the same program."""
        self.ports.attach(pipeline.switch)
        self.pipeline = pipeline

    def start(self, load: Callable[[], PipelineConfig], failed: Callable[[str], None]) -> None:
        """Start a thread that puts the configuration that ``load`` returns into service.

        A program that is not in the cache is compiled without optimization first, and exchanged for
        the optimized one when that is there. Until the program runs, packets wait for it in the
        buffers of the ports. ``settled`` waits for it, too; ``failed`` is called with the reason if
        it does not work.
        """

        def run() -> None:
            """Put the program into service, end all waits for it, and optimize it."""
            try:
                pipeline = self.pipeline_of(load())
                self.commit(pipeline)
            except (P4Error, SoftSwitchError) as e:
                self.pipeline, self._failure = None, str(e)
                failed(str(e))
                return
            finally:
                with suppress(SoftSwitchError):  # the switch has stopped
                    self.ports.pause(False)
                self._started.set()
            self.optimize(pipeline)

        self._started.clear()
        self._failure = ""
        self.ports.pause(True)
        threading.Thread(target=run, name="start", daemon=True).start()

    def optimize(self, pipeline: Pipeline) -> None:
        """Compile the program of a pipeline with optimization, unless it is, and let the pipeline
        run it from now on, if it is in service."""
        program = pipeline.config.program
        if program.optimized:
            return
        try:
            program.compile()
            with self.lock:
                if pipeline is self.pipeline:
                    self.ports.attach(pipeline.switch)
        except SoftSwitchError as e:  # the switch runs without it
            self.ports.say("warn", f"the program stays as slow as it is: {e}")

    @property
    def is_settled(self) -> bool:
        """Return False while a program is on its way into service."""
        return self._started.is_set()

    def settled(self) -> None:
        """Wait until the program that was started runs; the caller must not hold the lock."""
        self._started.wait()

    def running(self) -> Pipeline:
        """Return the pipeline in service; raise ``P4Error`` without one."""
        if self.pipeline is None:
            if self._failure:
                raise P4Error(INTERNAL, f"the program cannot run: {self._failure}")
            raise P4Error(FAILED_PRECONDITION, "no forwarding pipeline config has been set")
        return self.pipeline

    def close(self) -> None:
        """End the thread that serves digests and packets to the controller."""
        self._stop.set()
        self.ports.wake()
        self._thread.join()

    # ---- from the data plane to the primary controller ----

    def _send(self, **what: Any) -> bool:
        primary = self.arbitration.primary()
        if primary is None:
            return False
        return primary.out.put(p4runtime_pb2.StreamMessageResponse(**what), droppable=True)

    def _serve_controller(self) -> None:
        due: float | None = None
        while not self._stop.is_set():
            events = self.ports.wait(due)
            if self._stop.is_set():
                return
            try:
                with self.lock:
                    due = self._serve_events(events)
            except Exception as e:  # a defect here must not end the service
                due = None
                defect(e)
            time.sleep(PAUSE)

    def _serve_events(self, events: int) -> float | None:
        if self.pipeline is None:
            return None
        if events & PACKET:
            while (data := self.ports.take()) is not None:
                self._send(packet=self.pipeline.packet_in.unpack(data))
        dues = (
            self.pipeline.digests.poll(lambda m: self._send(digest=m)),
            self.pipeline.ageing.poll(lambda m: self._send(idle_timeout_notification=m)),
        )
        return min((d for d in dues if d is not None), default=None)

    def wake(self) -> None:
        """Wake the thread that checks digests and idle timeouts, as new ones may be due."""
        self.ports.wake()
