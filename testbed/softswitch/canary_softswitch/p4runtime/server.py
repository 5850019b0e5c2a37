# SPDX-License-Identifier: Apache-2.0
"""The gRPC server of P4Runtime.

One thread runs an event loop with a coroutine for each RPC, and a few worker threads carry out the
RPCs, so an RPC whose client is idle or slow occupies no thread. Requests are read as messages of a
stream and parsed in the worker threads, so that an incomplete request can be abandoned and a long
one does not delay the loop. On the wire this makes no difference.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio

from canary_softswitch import limits
from canary_softswitch.device.controllers import Controller, Outbox
from canary_softswitch.device.device import Device, defect
from canary_softswitch.device.messages import (
    DEADLINE_EXCEEDED,
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    BatchError,
    P4Error,
    p4runtime_pb2,
)
from canary_softswitch.errors import SoftSwitchError
from canary_softswitch.p4runtime.calls import P4Runtime

T = TypeVar("T")
Context = Any  # grpc.aio's: its type knows messages, not bytes

EOF: Any = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]
STATUS = {code.value[0]: code for code in grpc.StatusCode}
AT_ONCE = 2  # messages of an answer that a thread makes before it looks for other work
_LOOK_S = 0.01  # between two looks at a program that is compiled
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.bdp_probe", 0),  # else gRPC takes megabytes ahead from a client that is fast
    ("grpc.max_receive_message_length", limits.REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_allowed_incoming_connections", limits.GRPC_CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", round(limits.HANDSHAKE_SECONDS * 1000)),
    ("grpc.keepalive_time_ms", round(limits.KEEPALIVE_SECONDS * 1000)),
    ("grpc.keepalive_timeout_ms", round(limits.ALIVE_SECONDS * 1000)),
    ("grpc.max_connection_idle_ms", round(limits.IDLE_SECONDS * 1000)),
)


class Rpcs:
    """Limits concurrent RPCs to ``most``, of which ``most_silent`` may wait for a first request.

    A new RPC beyond the limits ends the one that has waited longest.
    """

    def __init__(self, most: int, most_silent: int) -> None:
        self._most, self._most_silent = most, most_silent
        self._n = 0
        self._silent: dict[asyncio.Timeout, None] = {}

    def __enter__(self) -> None:
        self._n += 1

    def __exit__(self, *_: object) -> None:
        self._n -= 1

    async def first(self, context: Context, seconds: float | None = None) -> Any:
        """Return the first message of a client, awaited for ``seconds``, or forever for None.

        Raises ``P4Error`` if the RPC has to end before it.
        """
        full = self._n > self._most or len(self._silent) >= self._most_silent
        if full and not self._give_way():
            raise P4Error(
                RESOURCE_EXHAUSTED, f"{self._most} other connections are open: try again later"
            )
        deadline = asyncio.timeout(seconds)
        self._silent[deadline] = None
        try:
            async with deadline:
                return await context.read()
        except TimeoutError:
            if deadline not in self._silent:
                why = "the request is still missing, and newer calls came"
                raise P4Error(RESOURCE_EXHAUSTED, why) from None
            raise P4Error(DEADLINE_EXCEEDED, f"no request arrived within {seconds:g} s") from None
        finally:
            self._silent.pop(deadline, None)

    def _give_way(self) -> bool:
        for oldest in self._silent:
            del self._silent[oldest]
            oldest.reschedule(asyncio.get_running_loop().time())
            return True
        return False


async def _refuse(context: Context, error: Exception) -> NoReturn:
    """End an RPC with the status of an error; one that is no ``P4Error`` is a defect."""
    if isinstance(error, grpc.aio.BaseError):
        raise error  # the client went
    if not isinstance(error, P4Error):
        error = defect(error)
    details = (("grpc-status-details-bin", error.status),) if isinstance(error, BatchError) else ()
    await context.abort(STATUS[error.code], error.message, details)
    raise error  # not reached: abort raises


def _parsed(kind: Any, data: bytes) -> Any:
    """Return a client's bytes parsed as a message of class ``kind``, or raise ``P4Error``."""
    try:
        return kind.FromString(data)
    except Exception as e:  # protobuf's own Python raises errors of many kinds
        reason = f"this is no {kind.DESCRIPTOR.name}: {type(e).__name__} {e}"
        raise P4Error(INVALID_ARGUMENT, reason) from None


def _answer(rpc: Callable[[Any], Any], kind: Any, data: bytes) -> bytes:
    """Return the serialized answer to a serialized request of a class."""
    return rpc(_parsed(kind, data)).SerializeToString()


def _answers(rpc: Callable[[Any], Iterator[bytes]], kind: Any, data: bytes) -> Iterator[bytes]:
    """Yield the serialized answers to a serialized request of a class."""
    yield from rpc(_parsed(kind, data))


def _some(answers: Iterator[bytes]) -> list[bytes]:
    """Return the next answers, fewer than ``AT_ONCE`` at the end."""
    return list(islice(answers, AT_ONCE))


@dataclass(frozen=True)
class Tls:
    """PEM texts of a server with TLS.

    With ``ca``, clients are asked for a certificate signed by it, and need one if ``required``.
    """

    cert: bytes
    key: bytes
    ca: bytes | None
    required: bool

    @classmethod
    def read(cls, cert: str, key: str, ca: str | None, required: bool) -> Tls:
        """Read the files of these names; raise ``SoftSwitchError`` when one cannot be read."""
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
        """Return the credentials that a gRPC server takes."""
        return grpc.ssl_server_credentials([(self.key, self.cert)], self.ca, self.required)


class Threads:
    """The event loop and the threads that serve the RPCs of a process's devices."""

    def __init__(self) -> None:
        # What gRPC would log of clients that go is no defect; ours are logged by ``defect``.
        logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)
        self.pool = ThreadPoolExecutor(limits.THREADS, thread_name_prefix="p4runtime")
        self.reading = ThreadPoolExecutor(limits.READING_THREADS, thread_name_prefix="read")
        self.configuring = ThreadPoolExecutor(1, thread_name_prefix="configure")
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="grpc", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine in the loop and return its result.

        Raises TimeoutError after ``timeout`` seconds; None waits forever.
        """
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def stop(self) -> None:
        """End the threads; all servers must have been stopped."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1)
        for pool in (self.pool, self.reading, self.configuring):
            pool.shutdown(wait=False, cancel_futures=True)


class Server:
    """A gRPC server with the P4Runtime service of a device.

    Args:
        device: The device.
        address: The address to listen on, ``HOST:PORT`` or ``unix:PATH``.
        threads: The threads that serve the RPCs.
        tls: The certificates for TLS; None means no TLS.

    Raises:
        SoftSwitchError: It cannot listen there.
    """

    def __init__(
        self, device: Device, address: str, threads: Threads, tls: Tls | None = None
    ) -> None:
        self._service = P4Runtime(device)
        self._threads = threads
        self._loop = threads.loop
        self._calls = Rpcs(limits.CALLS, limits.COMING_CALLS)
        self._streams = Rpcs(limits.STREAMS, limits.STREAMS)
        self._in_work = 0  # bytes of the requests that threads have
        self._server, self.port = threads.run(self._start(address, tls))
        if not self.port:
            self.stop()
            raise SoftSwitchError(f"cannot listen on {address}")
        #: Where it listens, with the port that was chosen when 0 was asked for.
        self.address = address
        if not address.startswith("unix:"):
            self.address = f"{address.rpartition(':')[0]}:{self.port}"

    async def _start(self, address: str, tls: Tls | None) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("p4.v1.P4Runtime", self._handlers()),)
        )
        try:
            port = (
                server.add_secure_port(address, tls.credentials())
                if tls
                else server.add_insecure_port(address)
            )
        except RuntimeError:
            return server, 0
        await server.start()
        return server, port

    def stop(self) -> None:
        """Stop listening, and end all calls within about a second."""
        with suppress(TimeoutError):
            self._threads.run(self._server.stop(0.1), 1)

    def _handlers(self) -> dict[str, grpc.RpcMethodHandler]:
        """Return the RPCs by name. To gRPC the requests are streams of bytes."""
        service, stream = self._service, grpc.stream_stream_rpc_method_handler

        def guarded(rpcs: Rpcs, serve: Callable[[Context], Coroutine[Any, Any, T]]) -> Any:
            """Return the handler of an RPC, which is counted in ``rpcs`` while ``serve`` runs."""

            async def handle(_: object, context: Context) -> T:
                """Return what ``serve`` returns; end the RPC with a status if it raises."""
                with rpcs:
                    try:
                        return await serve(context)
                    except Exception as e:
                        await _refuse(context, e)

            return handle

        def unary(rpc: Callable[[Any], Any], pool: Executor) -> grpc.RpcMethodHandler:
            """Return the handler of an RPC with one request and one answer, made in ``pool``."""
            kind = getattr(p4runtime_pb2, f"{rpc.__name__}Request")

            async def serve(context: Context) -> bytes:
                """Return the serialized answer to the one request of the call."""
                data = await self._request(context)
                if rpc != service.Capabilities:
                    await self._settled()
                return await self._work(len(data), pool, _answer, rpc, kind, data)

            return grpc.stream_unary_rpc_method_handler(guarded(self._calls, serve))

        pool, configuring = self._threads.pool, self._threads.configuring
        return {
            "SetForwardingPipelineConfig": unary(service.SetForwardingPipelineConfig, configuring),
            "GetForwardingPipelineConfig": unary(service.GetForwardingPipelineConfig, pool),
            "Capabilities": unary(service.Capabilities, pool),
            "Write": unary(service.Write, pool),
            "Read": stream(guarded(self._calls, self._read)),
            "StreamChannel": stream(guarded(self._streams, self._stream)),
        }

    # ---- calls ----

    async def _request(self, context: Context) -> bytes:
        data = await self._calls.first(context, limits.CALL_SECONDS)
        if data is EOF:
            raise P4Error(INVALID_ARGUMENT, "the request is missing")
        return data

    async def _work(self, size: int, pool: Executor, do: Callable[..., T], *arguments: Any) -> T:
        """Run ``do`` in a thread for a request of ``size`` bytes and return its result.

        If the client disconnects meanwhile, the work still runs, and counts, to its end.
        """
        if self._in_work + size > limits.IN_WORK_BYTES:
            raise P4Error(RESOURCE_EXHAUSTED, "the server is busy: try again later")
        self._in_work += size
        work = self._loop.run_in_executor(pool, do, *arguments)
        work.add_done_callback(lambda _: self._done(size))
        return await asyncio.shield(work)

    async def _settled(self) -> None:
        """Wait, without a thread, until no program is on its way into service."""
        while not self._service.device.is_settled:
            await asyncio.sleep(_LOOK_S)

    def _done(self, size: int) -> None:
        self._in_work -= size

    async def _read(self, context: Context) -> None:
        """Serve the RPC Read; answers are made as the client takes them."""
        data = await self._request(context)
        await self._settled()
        answers = _answers(self._service.Read, p4runtime_pb2.ReadRequest, data)
        while some := await self._work(len(data), self._threads.reading, _some, answers):
            for answer in some:
                try:
                    async with asyncio.timeout(limits.CALL_SECONDS):
                        await context.write(answer)
                except TimeoutError:
                    why = f"the client read no answer for {limits.CALL_SECONDS:g} s"
                    raise P4Error(DEADLINE_EXCEEDED, why) from None
            if len(some) < AT_ONCE:
                return

    # ---- streams ----

    async def _stream(self, context: Context) -> None:
        """Serve the RPC StreamChannel: arbitration, packets and digests of one controller."""
        out = Outbox(self._loop, lambda: sender.cancel())
        controller = Controller(out)
        sender = self._loop.create_task(self._send(out, context))
        receiver = self._loop.create_task(self._receive(controller, context, sender))
        try:
            await asyncio.wait((sender,))
            if out.error is not None:
                raise out.error
            if sender.cancelled():
                raise P4Error(RESOURCE_EXHAUSTED, "the client does not read its stream")
            sender.result()
        finally:
            out.end()
            sender.cancel()
            receiver.cancel()
            self._service.device.arbitration.leave(controller)

    @staticmethod
    async def _send(out: Outbox, context: Context) -> None:
        while (message := await out.take()) is not None:
            await context.write(message)

    async def _receive(
        self, controller: Controller, context: Context, sender: asyncio.Task[None]
    ) -> None:
        """Handle a client's messages; after the last, the client may read for some seconds."""
        out, pool = controller.out, self._threads.pool
        try:
            data = await self._streams.first(context)
            while data is not EOF:
                await self._loop.run_in_executor(pool, self._message, controller, data)
                data = await context.read()
                await self._settled()
            out.end()
            await asyncio.sleep(limits.OUTBOX_SECONDS)
            sender.cancel()
        except P4Error as e:
            out.end(e)
        except grpc.aio.BaseError:
            out.end()  # the client went
        except Exception as e:  # a defect here must not leave the client waiting
            out.end(defect(e))

    def _message(self, controller: Controller, data: bytes) -> None:
        self._service.message(controller, _parsed(p4runtime_pb2.StreamMessageRequest, data))
