# SPDX-License-Identifier: Apache-2.0
"""The RPCs of P4Runtime on one device; their transport is in ``server``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from canary_softswitch.device.config import PipelineConfig
from canary_softswitch.device.controllers import Controller
from canary_softswitch.device.device import Device, defect
from canary_softswitch.device.messages import (
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNIMPLEMENTED,
    BatchError,
    P4Error,
    answers,
    p4runtime_pb2,
)
from canary_softswitch.device.pipeline import Pipeline
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.ports.ports import LONGEST

API_VERSION = "1.4.1"
MOST_RETURNED = 1 << 16  # bytes of a refused packet-out that go back with the error
ACTIONS = p4runtime_pb2.SetForwardingPipelineConfigRequest
CONFIG = p4runtime_pb2.GetForwardingPipelineConfigRequest


class P4Runtime:
    """The RPCs of one device, each of which takes a request and returns the response.

    A refused request raises ``P4Error``. The RPCs may be called from any thread;
    ``SetForwardingPipelineConfig`` from one at a time.
    """

    def __init__(self, device: Device) -> None:
        self.device = device

    # ---- configuration ----

    def SetForwardingPipelineConfig(self, request: Any) -> Any:
        """Verify, save, commit or reconcile a configuration, as the request says.

        Returns an empty response; raises ``P4Error`` if the configuration or the client is refused.
        """
        self.device.arbitration.allow(request)
        self.device.settled()
        try:
            self._configure(request)
        except SoftSwitchError as e:  # such as no C compiler
            raise P4Error(INTERNAL, str(e)) from None
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def _configure(self, request: Any) -> None:
        device = self.device
        if request.action == ACTIONS.COMMIT:
            if device.saved is None:
                raise P4Error(FAILED_PRECONDITION, "no forwarding pipeline config was saved")
            self._commit(device.saved)
            return
        if request.action not in (
            ACTIONS.VERIFY,
            ACTIONS.VERIFY_AND_SAVE,
            ACTIONS.VERIFY_AND_COMMIT,
            ACTIONS.RECONCILE_AND_COMMIT,
        ):
            raise P4Error(INVALID_ARGUMENT, "the action is missing")
        if not request.HasField("config") or not request.config.HasField("p4info"):
            raise P4Error(INVALID_ARGUMENT, "the config has no P4Info")
        c = request.config
        config = PipelineConfig(
            c.p4info,
            c.p4_device_config,
            c.cookie.cookie if c.HasField("cookie") else None,
            device.drop_port,
        )
        if request.action == ACTIONS.VERIFY_AND_SAVE:
            device.saved = config
        elif request.action == ACTIONS.VERIFY_AND_COMMIT:
            self._commit(config)
        elif request.action == ACTIONS.RECONCILE_AND_COMMIT:
            self._reconcile(config)

    def _commit(self, config: PipelineConfig) -> None:
        """Put a configuration into service: at once if its program was compiled before, else as
        soon as it is; calls and packets wait for it then, and this one does not."""
        device = self.device
        if config.program.compiled:
            device.commit(device.pipeline_of(config))
            return
        device.check_swap()
        device.start(lambda: config, lambda why: device.ports.say("error", why))

    def _reconcile(self, config: PipelineConfig) -> None:
        """Keep all state if the program is the same, else only its entries, which must fit."""
        device = self.device
        config.program.compile_quickly()
        with device.lock:
            old = device.pipeline
            if old is not None and old.config.same_as(config):
                old.config.cookie = config.cookie
                return
            new = device.pipeline_of(config)
            if old is not None:
                try:
                    new.restore(old.entities())
                except P4Error as e:
                    raise P4Error(INVALID_ARGUMENT, f"cannot reconcile: {e.message}") from None
            device.commit(new)
        threading.Thread(target=device.optimize, args=(new,), name="optimize", daemon=True).start()

    def GetForwardingPipelineConfig(self, request: Any) -> Any:
        """Return the parts of the configuration in service that the request asks for."""
        response = p4runtime_pb2.GetForwardingPipelineConfigResponse()
        self._device(request)
        self.device.settled()
        with self.device.lock:
            config = self.device.running().config
        kind, out = request.response_type, response.config
        if config.cookie is not None:
            out.cookie.cookie = config.cookie
        if kind in (CONFIG.ALL, CONFIG.P4INFO_AND_COOKIE):
            out.p4info.CopyFrom(config.p4info)
        if kind in (CONFIG.ALL, CONFIG.DEVICE_CONFIG_AND_COOKIE):
            out.p4_device_config = config.device_config
        return response

    def _device(self, request: Any) -> None:
        if request.device_id != self.device.id:
            raise P4Error(
                NOT_FOUND,
                f"there is no device {request.device_id}: this is device {self.device.id}",
            )

    def Capabilities(self, request: Any) -> Any:
        """Return the version of the P4Runtime API that this server implements."""
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    # ---- entities ----

    def Write(self, request: Any) -> Any:
        """Apply the updates in order; the ones that fail do not stop the others.

        Returns an empty response; raises ``BatchError``, an error for each update, if one failed.
        """
        self.device.arbitration.allow(request)
        if request.atomicity != p4runtime_pb2.WriteRequest.CONTINUE_ON_ERROR:
            raise P4Error(UNIMPLEMENTED, "only CONTINUE_ON_ERROR is supported")
        self.device.settled()
        with self.device.lock:
            pipeline = self.device.running()
            errors = [self._apply(pipeline, update) for update in request.updates]
        if any(
            u.entity.HasField("digest_entry") or u.entity.table_entry.idle_timeout_ns
            for u in request.updates
        ):
            self.device.wake()
        if any(errors):
            raise BatchError(errors)
        return p4runtime_pb2.WriteResponse()

    @staticmethod
    def _apply(pipeline: Pipeline, update: Any) -> P4Error | None:
        try:
            pipeline.write(update)
        except P4Error as e:
            return e
        except Exception as e:  # a defect here must not stop the rest of the batch
            return defect(e)
        return None

    def Read(self, request: Any) -> Iterator[bytes]:
        """Yield the entities that match any of the request's, as serialized ReadResponses.

        The device is locked for each part separately, so that a long Read does not block others.
        """
        self._device(request)
        self.device.settled()
        for entity in request.entities:
            with self.device.lock:
                found = answers(self.device.running().read(entity))
            yield from iter(partial(self._part, found), None)

    def _part(self, found: Iterator[bytes]) -> bytes | None:
        with self.device.lock:
            return next(found, None)

    # ---- stream ----

    def message(self, c: Controller, request: Any) -> None:
        """Handle a message of a controller's stream; raise ``P4Error`` to end the stream."""
        which = request.WhichOneof("update")
        if which == "arbitration":
            self.device.arbitration.update(c, request.arbitration)
            return
        if c.role is None:
            raise P4Error(FAILED_PRECONDITION, "the first message must be an arbitration")
        handlers: dict[str, Callable[[Any], None]] = {
            "packet": self._packet_out,
            "digest_ack": self._digest_ack,
        }
        try:
            if which not in handlers:
                raise P4Error(UNIMPLEMENTED, f"{which or 'an empty message'} is not supported")
            if c is not self.device.arbitration.primary(c.role):
                raise P4Error(PERMISSION_DENIED, "not primary")
            self._handle(handlers[which], getattr(request, which))
        except P4Error as e:
            error = p4runtime_pb2.StreamError(canonical_code=e.code, message=e.message)
            if which == "packet":
                error.packet_out.SetInParent()
                if request.packet.ByteSize() <= MOST_RETURNED:
                    error.packet_out.packet_out.CopyFrom(request.packet)
            elif which == "digest_ack":
                error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
            else:
                error.other.SetInParent()
            c.out.put(p4runtime_pb2.StreamMessageResponse(error=error), droppable=True)

    def _handle(self, handler: Callable[[Any], None], message: Any) -> None:
        try:
            self.device.settled()
            handler(message)
        except P4Error:
            raise
        except Exception as e:  # a defect here must not end the stream
            raise defect(e) from None

    def _packet_out(self, packet: Any) -> None:
        ports = self.device.ports
        if ports.cpu_port is None:
            raise P4Error(
                FAILED_PRECONDITION, "the switch has no CPU port: start it with --cpu-port"
            )
        if len(packet.payload) > LONGEST:
            raise P4Error(INVALID_ARGUMENT, f"a packet has at most {LONGEST} bytes")
        with self.device.lock:
            header = self.device.running().packet_out.pack(packet.metadata)
            ports.inject(ports.cpu_port, header + packet.payload)

    def _digest_ack(self, ack: Any) -> None:
        with self.device.lock:
            self.device.running().digests.ack(ack)
