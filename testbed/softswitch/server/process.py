"""The soft switch as a process, with the command line of simple_switch_grpc::

    python -m testbed.softswitch.server.process --device-id 3 --thrift-port 9093 --no-p4 \\
        -i 1@s3-eth1 -i 2@s3-eth2 -- --grpc-server-addr 127.0.0.1:50003 --cpu-port 255

It attaches to its interfaces, serves P4Runtime and BMv2's Thrift calls for registers on
loopback, prints one line when it is ready, and ends with status 0 on SIGTERM and SIGINT, after a
line for each port that says what passed it.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from testbed.softswitch.server.ports import Port

GRPC_ADDRESS = "127.0.0.1:9559"
THRIFT_PORT = 9090
NAME = "softswitch"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{NAME}: {message} (see --help)\n")


def number(low: int, high: int, what: str):
    """Type of an option whose value is an int in a range."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} ({low}..{high})")
        return value

    return parse


def interface(text: str) -> tuple[int, str]:
    """PORT@IFACE."""
    port, at, name = text.partition("@")
    if not at or not name or not port.isdecimal() or int(port) > 510:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT@INTERFACE with a port of 0..510")
    return int(port), name


def address(text: str) -> str:
    """HOST:PORT on loopback, or unix:PATH."""
    if text.startswith("unix:") and len(text) > len("unix:"):
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT or unix:PATH")
    if host not in ("127.0.0.1", "localhost"):
        raise argparse.ArgumentTypeError(
            f"{host!r} is not 127.0.0.1: the switch listens on loopback only"
        )
    return f"127.0.0.1:{port}"


def _general_parser() -> _Parser:
    parser = _Parser(
        NAME,
        allow_abbrev=False,
        usage=f"{NAME} [options] [--no-p4 | JSON] "
        "[-- [--grpc-server-addr HOST:PORT] [--cpu-port N]]",
        description="A software switch in place of simple_switch_grpc.",
    )
    parser.add_argument(
        "-i",
        "--interface",
        metavar="PORT@INTERFACE",
        type=interface,
        action="append",
        default=[],
        help="attach an interface to a port",
    )
    parser.add_argument(
        "--device-id",
        metavar="N",
        default=0,
        type=number(0, (1 << 64) - 1, "a device id"),
        help="default 0",
    )
    parser.add_argument(
        "--thrift-port",
        metavar="PORT",
        default=THRIFT_PORT,
        type=number(0, 65535, "a port"),
        help=f"default {THRIFT_PORT}; 0 chooses a free one",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=number(0, (1 << 64) - 1, "a seed"),
        help="seeds the program's random numbers; default: the device id",
    )
    parser.add_argument("--no-p4", action="store_true", help="wait for a pipeline by P4Runtime")
    parser.add_argument("json", metavar="JSON", nargs="?", help="BMv2 JSON to run from the start")
    parser.epilog = (
        "After --:  --grpc-server-addr HOST:PORT  where P4Runtime listens, on "
        f"loopback only (default {GRPC_ADDRESS}); --cpu-port N  the port of packets "
        "from and to the controller"
    )
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; after ``--`` come those of the target, as for simple_switch_grpc."""
    general = _general_parser()
    target = _Parser(NAME, allow_abbrev=False, add_help=False)
    target.add_argument("--grpc-server-addr", type=address, default=GRPC_ADDRESS)
    target.add_argument("--cpu-port", type=number(0, 510, "a port"))
    words = list(arguments)
    cut = words.index("--") if "--" in words else len(words)
    options = general.parse_args(words[:cut])
    target.parse_args(words[cut + 1 :], options)
    if options.no_p4 and options.json:
        general.error("--no-p4 and a JSON file exclude each other")
    if not options.no_p4 and not options.json:
        general.error("give a JSON file or --no-p4")
    taken: set[int] = {options.cpu_port} if options.cpu_port is not None else set()
    for port, _ in options.interface:
        if port in taken:
            general.error(f"port {port} is there twice")
        taken.add(port)
    if options.seed is None:
        options.seed = options.device_id
    return options


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes; gives the exit status."""
    ended = _signal_socket()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is said here, in one line
    from testbed.softswitch.errors import SoftSwitchError
    from testbed.softswitch.server.ports import Port

    try:
        return _serve(options, [Port(*i) for i in options.interface], ended)
    except SoftSwitchError as e:
        print(f"{NAME}: {e}", file=sys.stderr)
        return 1


def _signal_socket() -> socket.socket:
    """A socket that gets a byte when SIGTERM or SIGINT comes, whatever thread it comes to."""
    ended, written = socket.socketpair()
    written.setblocking(False)
    signal.set_wakeup_fd(written.detach())
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: None)
    return ended


def _serve(options: argparse.Namespace, ports: list[Port], ended: socket.socket) -> int:
    from testbed.softswitch.server.p4runtime import Device, Server
    from testbed.softswitch.server.ports import Ports
    from testbed.softswitch.server.startup import start_program
    from testbed.softswitch.server.thrift_service import ThriftServer

    attached = Ports(ports, options.cpu_port)
    device = Device(options.device_id, attached, options.seed)
    if options.json:
        start_program(device, options.json)
    thrift = ThriftServer(device, options.thrift_port)
    server = Server(device, options.grpc_server_addr)
    print(
        f"{NAME}: device {options.device_id}, {len(ports)} ports, P4Runtime on {server.address}, "
        f"Thrift on 127.0.0.1:{thrift.port}",
        flush=True,
    )
    ended.recv(1)
    thrift.stop()
    server.stop()
    device.close()
    for port, n in zip(ports, attached.counters().values(), strict=True):
        print(
            f"{NAME}: port {port.number} {port.interface}: received {n.rx_packets}, sent "
            f"{n.tx_packets}, dropped {n.rx_dropped} on receiving and {n.tx_dropped} on sending"
        )
    for what, count in attached.totals().items():
        if count:
            print(f"{NAME}: {what}: {count} packets")
    attached.close()
    return 0


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Command line; ends the process."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    status = run(options)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that wait for clients do not hold it up


if __name__ == "__main__":
    main()
