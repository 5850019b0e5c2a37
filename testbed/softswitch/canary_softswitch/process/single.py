# SPDX-License-Identifier: Apache-2.0
"""The soft switch as a process, with the command line of simple_switch_grpc::

    canary-switch --device-id 3 --thrift-port 9093 --no-p4 \\
        -i 1@s3-eth1 -i 2@s3-eth2 -- --grpc-server-addr 127.0.0.1:50003 --cpu-port 255

It attaches to its interfaces, serves P4Runtime and BMv2's Thrift calls, prints one line when it is
ready, and ends with status 0 on SIGTERM and SIGINT, after a line for each port that says what
passed it.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from canary_softswitch.ports.namespaces import HERE, Namespace
from canary_softswitch.process.command_line import NAME, parse

FILES = 4096  # 512 ports with two files of packets each, and the connections of ``limits``

if TYPE_CHECKING:
    import argparse

    from canary_softswitch.p4runtime.server import Threads, Tls
    from canary_softswitch.ports.ports import Ports, Workers


def run(options: argparse.Namespace) -> int:
    """Run the switch until SIGTERM or SIGINT and return the exit status, a number.

    It is 2 for a program that is invalid or cannot be run, 1 for any other error, else 0.
    """
    more_files(FILES)
    ended, written = signal_sockets()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are printed here instead
    from canary_softswitch.errors import InvalidProgram, SoftSwitchError, UnsupportedProgram

    for warning in options.warnings:
        print(f"{NAME}: warning: {warning}", file=sys.stderr, flush=True)
    try:
        return _serve(options, ended, written)
    except SoftSwitchError as e:
        print(f"{NAME}: {e}", file=sys.stderr)
        return 2 if isinstance(e, (InvalidProgram, UnsupportedProgram)) else 1


def more_files(FILES) -> None:
    """Let this process open as many files as its ports and connections may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def signal_sockets() -> tuple[socket.socket, socket.socket]:
    """Return a socket that receives a byte on SIGTERM or SIGINT, and the one to write it to."""
    ended, written = socket.socketpair()
    written.setblocking(False)
    signal.set_wakeup_fd(written.fileno())
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: None)
    return ended, written


def _ports(options: argparse.Namespace, workers: Workers, namespace: Namespace) -> Ports:
    from canary_softswitch.ports.ports import Capture, Log, Port, Ports

    log = None
    if options.log_console or options.log_file:
        log = Log(
            options.log_file,
            options.log_level,
            options.dump_packet_data,
            options.log_file_max_size,
            options.log_file_max_files,
        )
    return Ports(
        [Port(*i) for i in options.interface],
        options.cpu_port,
        options.priority_queues,
        Capture(options.pcap, options.use_files is not None),
        log,
        workers,
        namespace,
    )


class RunningSwitch:
    """A switch of this process that serves its clients, from its construction until `stop`.

    Args:
        options: The options of the command line.
        workers, threads: The threads that forward its packets and serve its clients.
        failed: Called, from another thread, with the reason if the program cannot run.
        say: Called with each line that the switch prints.
        namespace: The network namespace of its interfaces and its Thrift server.

    Raises:
        SoftSwitchError: A port cannot be attached, or a server cannot listen.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        workers: Workers,
        threads: Threads,
        failed: Callable[[str], None],
        say: Callable[[str], None],
        namespace: Namespace = HERE,
    ) -> None:
        from canary_softswitch.device.config import read_config
        from canary_softswitch.device.device import Device
        from canary_softswitch.p4runtime.server import Server
        from canary_softswitch.ports.replay import Replay
        from canary_softswitch.thrift.server import ThriftServer

        self._say = say
        replay = None
        if options.use_files is not None:
            replay = Replay(options.interface, options.use_files)
        self._ports = ports = _ports(options, workers, namespace)
        self._device = device = Device(
            options.device_id,
            ports,
            options.seed,
            options.drop_port,
            not options.disable_swap,
            options.max_mc_groups,
        )
        if options.json:
            device.start(
                read_config(options.json, device.drop_port),
                lambda why: failed(f"{options.json}: {why}"),
            )
        tls = _tls(options)
        self._thrift = ThriftServer(device, options.thrift_port)
        self._server = Server(device, options.grpc_server_addr, threads, tls)
        ready = (
            f"device {options.device_id}, {len(ports.ports)} ports, "
            f"P4Runtime on {self._server.address}, Thrift on 127.0.0.1:{self._thrift.port}"
        )
        ports.say("info", ready)
        say(f"{NAME}: {ready}")
        if replay is not None:
            replay.start(ports, failed)

    def stop(self) -> None:
        """Stop serving, and print the counters of the ports."""
        self._thrift.stop()
        self._server.stop()
        self._device.close()
        self._say_what_passed()
        self._ports.close()

    def _say_what_passed(self) -> None:
        ports = self._ports
        for port, n in zip(ports.ports, ports.counters().values(), strict=True):
            self._say(
                f"{NAME}: port {port.number} {port.interface}: received {n.rx_packets}, sent "
                f"{n.tx_packets}, dropped {n.rx_dropped} on receiving and {n.tx_dropped} on sending"
            )
        for what, count in ports.totals().items():
            if count:
                self._say(f"{NAME}: {what}: {count} packets")


def _tls(options: argparse.Namespace) -> Tls | None:
    from canary_softswitch.p4runtime.server import Tls

    if not options.grpc_server_ssl:
        return None
    return Tls.read(
        options.grpc_server_cert,
        options.grpc_server_key,
        options.grpc_server_cacert,
        options.grpc_server_with_client_auth,
    )


def _serve(options: argparse.Namespace, ended: socket.socket, written: socket.socket) -> int:
    from canary_softswitch.compiler.source import translator
    from canary_softswitch.errors import SoftSwitchError
    from canary_softswitch.p4runtime.server import Threads
    from canary_softswitch.ports.ports import Workers

    failures: list[str] = []

    def failed(why: str) -> None:
        """Keep the reason of a failure and wake the main thread, which ends the process."""
        failures.append(why)
        written.send(b"\0")

    if options.no_p4:
        translator()  # so that the controller that sends a program does not wait for it
    switch = RunningSwitch(options, Workers(1), Threads(), failed, partial(print, flush=True))
    gc.freeze()
    gc.enable()
    ended.recv(1)
    if failures:
        raise SoftSwitchError(failures[0])
    switch.stop()
    return 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; end the process with its status."""
    gc.disable()  # until all modules are there: it would look at their objects again and again
    options = parse(sys.argv[1:] if arguments is None else arguments)
    status = run(options)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that wait for clients do not hold it up


if __name__ == "__main__":
    main()
