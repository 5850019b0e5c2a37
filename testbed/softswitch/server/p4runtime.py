"""The P4Runtime service of a switch process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc
from p4.v1 import p4runtime_pb2_grpc

from testbed.softswitch.errors import SoftSwitchError
from testbed.softswitch.server.arbitration import Controller
from testbed.softswitch.server.config import PipelineConfig
from testbed.softswitch.server.device import Device, defect
from testbed.softswitch.server.messages import p4runtime_pb2
from testbed.softswitch.server.pipeline import Pipeline
from testbed.softswitch.server.values import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNIMPLEMENTED,
    P4Error,
    batch_status,
)

API_VERSION = "1.4.1"
CHUNK = 500  # entities in one ReadResponse
WORKERS = 64
STATUS = {code.value[0]: code for code in grpc.StatusCode}
ACTIONS = p4runtime_pb2.SetForwardingPipelineConfigRequest
CONFIG = p4runtime_pb2.GetForwardingPipelineConfigRequest


def _abort(context: grpc.ServicerContext, e: P4Error) -> NoReturn:
    context.abort(STATUS[e.code], e.message)
    raise e  # not reached: abort raises


class P4Runtime(p4runtime_pb2_grpc.P4RuntimeServicer):
    """The generated service, for one device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._configuring = threading.Lock()

    # ---- configuration ----

    def SetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        """VERIFY, SAVE, COMMIT and RECONCILE; see the module of ``PipelineConfig``."""
        try:
            self.device.arbitration.allow(request)
            self.device.settled()
            with self._configuring:  # the device answers others while the program is compiled
                self._configure(request)
        except P4Error as e:
            _abort(context, e)
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def _configure(self, request: Any) -> None:
        device = self.device
        if request.action == ACTIONS.COMMIT:
            if device.saved is None:
                raise P4Error(FAILED_PRECONDITION, "no forwarding pipeline config was saved")
            device.commit(device.pipeline_of(device.saved))
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
            device.commit(device.pipeline_of(config))
        elif request.action == ACTIONS.RECONCILE_AND_COMMIT:
            self._reconcile(config)

    def _reconcile(self, config: PipelineConfig) -> None:
        """Keep all state of the same program; of another, keep the entries, which must fit."""
        device = self.device
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

    def GetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        """What was set, as far as the request asks for it."""
        response = p4runtime_pb2.GetForwardingPipelineConfigResponse()
        try:
            self._device(request)
            self.device.settled()
            with self.device.lock:
                config = self.device.running().config
        except P4Error as e:
            _abort(context, e)
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

    def Capabilities(self, request: Any, context: grpc.ServicerContext) -> Any:
        """The version of P4Runtime."""
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    # ---- entities ----

    def Write(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Apply the updates in order; the ones that fail do not stop the others."""
        errors: list[P4Error | None] = []
        try:
            self.device.arbitration.allow(request)
            if request.atomicity != p4runtime_pb2.WriteRequest.CONTINUE_ON_ERROR:
                raise P4Error(UNIMPLEMENTED, "only CONTINUE_ON_ERROR is supported")
            self.device.settled()
            with self.device.lock:
                pipeline = self.device.running()
                for update in request.updates:
                    errors.append(self._apply(pipeline, update))
        except P4Error as e:
            _abort(context, e)
        if any(
            u.entity.HasField("digest_entry") or u.entity.table_entry.idle_timeout_ns
            for u in request.updates
        ):
            self.device.look()
        if any(errors):
            status = batch_status(errors)
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
            context.abort(grpc.StatusCode.UNKNOWN, status.message)
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

    def Read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Stream the entities that match any of the request's."""
        try:
            self._device(request)
            self.device.settled()
            for entity in request.entities:
                with self.device.lock:
                    found = self.device.running().read(entity)
                for i in range(0, len(found), CHUNK):
                    yield p4runtime_pb2.ReadResponse(entities=found[i : i + CHUNK])
        except P4Error as e:
            _abort(context, e)

    # ---- stream ----

    def StreamChannel(
        self, request_iterator: Iterable[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """Arbitration, packets and digests of one controller."""
        controller = Controller()
        context.add_callback(lambda: controller.out.put(None))
        reader = threading.Thread(
            target=self._read_stream,
            name="stream",
            daemon=True,
            args=(controller, request_iterator),
        )
        reader.start()
        try:
            while (message := controller.out.get()) is not None:
                if isinstance(message, P4Error):
                    _abort(context, message)
                yield message
        finally:
            self.device.arbitration.leave(controller)

    def _read_stream(self, c: Controller, requests: Iterable[Any]) -> None:
        try:
            for request in requests:
                self._message(c, request)
        except P4Error as e:
            c.out.put(e)
        except grpc.RpcError:
            pass  # the client went
        except Exception as e:  # a defect here must not leave the client waiting
            c.out.put(defect(e))
        finally:
            c.out.put(None)

    def _message(self, c: Controller, request: Any) -> None:
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
                error.packet_out.packet_out.CopyFrom(request.packet)
            elif which == "digest_ack":
                error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
            else:
                error.other.SetInParent()
            c.out.put(p4runtime_pb2.StreamMessageResponse(error=error))

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
        with self.device.lock:
            header = self.device.running().packet_out.pack(packet.metadata)
            ports.inject(ports.cpu_port, header + packet.payload)

    def _digest_ack(self, ack: Any) -> None:
        with self.device.lock:
            self.device.running().digests.ack(ack)


@dataclass(frozen=True)
class Tls:
    """PEM texts of a server with TLS; with ``ca`` clients are asked for a certificate of it, which
    they must have if ``required``."""

    cert: bytes
    key: bytes
    ca: bytes | None
    required: bool

    @classmethod
    def read(cls, cert: str, key: str, ca: str | None, required: bool) -> Tls:
        """The files of these names; ``SoftSwitchError`` when one cannot be read."""
        if required and not ca:
            raise SoftSwitchError("to ask clients for certificates, give --grpc-server-cacert")
        texts = []
        for path in (cert, key, ca):
            try:
                texts.append(Path(path).read_bytes() if path else None)
            except OSError as e:
                raise SoftSwitchError(f"cannot read {path}: {e.strerror}") from None
        return cls(texts[0] or b"", texts[1] or b"", texts[2], required)

    def credentials(self) -> grpc.ServerCredentials:
        """What gRPC makes of them."""
        return grpc.ssl_server_credentials([(self.key, self.cert)], self.ca, self.required)


class Server:
    """A gRPC server with the P4Runtime service of a device."""

    def __init__(self, device: Device, address: str, tls: Tls | None = None) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="p4runtime")
        self._server = grpc.server(
            self._pool,
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ),
        )
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(P4Runtime(device), self._server)
        try:
            self.port = (
                self._server.add_secure_port(address, tls.credentials())
                if tls
                else self._server.add_insecure_port(address)
            )
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise SoftSwitchError(f"cannot listen on {address}")
        #: Where it listens, with the port that was chosen when 0 was asked for.
        self.address = address
        if not address.startswith("unix:"):
            self.address = f"{address.rpartition(':')[0]}:{self.port}"
        self._server.start()

    def stop(self) -> None:
        """End all calls and stop listening."""
        self._server.stop(0.1).wait(1)
        self._pool.shutdown(wait=False)
