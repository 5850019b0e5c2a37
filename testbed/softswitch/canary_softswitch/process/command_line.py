# SPDX-License-Identifier: Apache-2.0
"""Parses the command line of simple_switch_grpc; options without effect give a warning."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import NoReturn

NAME = "canary-switch"
GRPC_ADDRESS = "127.0.0.1:9559"
THRIFT_PORT = 9090
VERSION = "1.0.0"
JSON_VERSION = "2.24"  # the newest BMv2 JSON that is read
LEVELS = ("trace", "debug", "info", "warn", "error", "off")
MOST_PORTS = 512
INT_MAX = (1 << 31) - 1

#: Options that have no effect, and the reason; each one used gives a warning.
WITHOUT_EFFECT = {
    "nanolog": "there is no nanomsg event log: use --log-console or --log-file",
    "debugger": "there is no debugger",
    "debugger_addr": "there is no debugger",
    "notifications_addr": "notifications go to P4Runtime's stream",
    "packet_in": "packets come from interfaces or --use-files, not from a nanomsg socket",
    "restore_state": "BMv2's saved state cannot be read: the switch starts empty",
    "load_modules": "BMv2's modules cannot be loaded, and a program that needs one is refused",
    "dp_grpc_server_addr": "packets come from interfaces or --use-files, not by gRPC",
}
TARGET_HELP = """
after -- come the options of the target:
  --grpc-server-addr HOST:PORT  where P4Runtime listens, or unix:PATH (default {address})
  --grpc-server-ssl --grpc-server-cert FILE --grpc-server-key FILE
  [--grpc-server-cacert FILE] [--grpc-server-with-client-auth]  TLS
  --cpu-port N            the port of packets from and to the controller
  --drop-port N           the port that means drop (default 511)
  --priority-queues N     queues of a port, 1 to 255 (default 1)
  --max-mc-groups N --max-l1-entries N --max-l2-entries N  limits of the multicast tables
  --disable-swap          the program cannot be replaced by another
without effect, with a warning: {without}
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End the process with one line and status 2."""
        self.exit(2, f"{NAME}: {message} (see --help)\n")


def _number(low: int, high: int, what: str) -> Callable[[str], int]:
    """Return the type of an option whose value is an int in a range."""

    def parse_number(text: str) -> int:
        """Return the number of an option; raise ArgumentTypeError if it is outside the range."""
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} ({low}..{high})")
        return value

    return parse_number


def _interface(text: str) -> tuple[int, str]:
    """Return the port number and the interface of an option ``PORT@INTERFACE``."""
    port, at, name = text.lstrip().partition("@")  # p4c's test runner writes `-i 1@a` as one
    if not at or not name or not port.isdecimal() or int(port) >= MOST_PORTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT@INTERFACE with a port of 0..511")
    return int(port), name


def _address(text: str) -> str:
    """Return an address if it is ``HOST:PORT`` or ``unix:PATH``, or raise ArgumentTypeError."""
    if text.startswith("unix:") and len(text) > len("unix:"):
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT or unix:PATH")
    return text


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return text


def _general() -> _Parser:
    parser = _Parser(
        NAME,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"{NAME} [options] [--no-p4 | JSON] [-- target options]",
        description="A software switch in place of simple_switch_grpc.",
        epilog=TARGET_HELP.format(
            address=GRPC_ADDRESS,
            without=" ".join("--" + o.replace("_", "-") for o in WITHOUT_EFFECT),
        ),
    )
    add = parser.add_argument
    add("-v", "--version", action="version", version=VERSION)
    add(
        "--json-version",
        action="version",
        version=JSON_VERSION,
        help="newest version of BMv2 JSON that is read",
    )
    add("json", metavar="JSON", nargs="?", help="BMv2 JSON to run from the start")
    add(
        "--no-p4",
        action="store_true",
        help="start without a program and wait for one from P4Runtime",
    )
    _add_ports(parser)
    _add_log(parser)
    add("--device-id", metavar="N", default=0, type=_number(0, (1 << 64) - 1, "a device id"))
    add(
        "--thrift-port",
        metavar="PORT",
        default=THRIFT_PORT,
        type=_number(0, 65535, "a port"),
        help=f"default {THRIFT_PORT}; 0 chooses a free one",
    )
    add(
        "--seed",
        metavar="N",
        type=_number(0, (1 << 64) - 1, "a seed"),
        help="seeds the program's random numbers; default: the device id",
    )
    for name in ("nanolog", "debugger-addr", "notifications-addr", "packet-in", "restore-state"):
        add("--" + name, metavar="WHAT", help=argparse.SUPPRESS)
    add("--debugger", action="store_true", help=argparse.SUPPRESS)
    return parser


def _add_ports(parser: _Parser) -> None:
    add = parser.add_argument
    add(
        "-i",
        "--interface",
        metavar="PORT@INTERFACE",
        type=_interface,
        action="append",
        default=[],
        help="attach an interface to a port",
    )
    add(
        "--pcap",
        metavar="DIR",
        nargs="?",
        const=".",
        type=_folder,
        help="save the packets of each interface to INTERFACE_in.pcap and INTERFACE_out.pcap",
    )
    add(
        "--use-files",
        metavar="S",
        type=_number(-INT_MAX, INT_MAX, "seconds"),
        help="after S seconds read packets from INTERFACE_in.pcap and write them to "
        "INTERFACE_out.pcap",
    )
    add("--max-port-count", metavar="N", default=MOST_PORTS, type=_number(0, INT_MAX, "a number"))


def _add_log(parser: _Parser) -> None:
    add = parser.add_argument
    add("--log-console", action="store_true", help="log to stdout")
    add("--log-file", metavar="FILE", help="log to FILE.txt")
    add("-L", "--log-level", choices=LEVELS, default="trace")
    add("--log-flush", action="store_true", help="accepted; the log is always flushed")
    add(
        "--log-file-max-size",
        metavar="BYTES",
        default=5 << 20,
        type=_number(1, 1 << 62, "a number of bytes"),
        help="size at which the next log file is begun",
    )
    add(
        "--log-file-max-files",
        metavar="N",
        default=3,
        type=_number(0, INT_MAX, "a number"),
        help="number of older log files to keep",
    )
    add(
        "--dump-packet-data",
        metavar="BYTES",
        default=0,
        type=_number(0, 1 << 62, "a number of bytes"),
        help="number of bytes to log of each packet",
    )


def _target() -> _Parser:
    parser = _Parser(NAME, allow_abbrev=False, add_help=False)
    add = parser.add_argument
    add("--grpc-server-addr", type=_address, default=GRPC_ADDRESS)
    add("--grpc-server-ssl", action="store_true")
    add("--grpc-server-cacert")
    add("--grpc-server-cert")
    add("--grpc-server-key")
    add("--grpc-server-with-client-auth", action="store_true")
    add("--dp-grpc-server-addr")
    add("--load-modules")
    add("--disable-swap", action="store_true")
    add("--cpu-port", type=_number(1, 511, "a port"))
    add("--drop-port", type=_number(0, 511, "a port"), default=511)
    add("--priority-queues", type=_number(1, 255, "a number of queues"), default=1)
    for name in ("--max-mc-groups", "--max-l1-entries", "--max-l2-entries"):
        add(name, type=_number(1, INT_MAX, "a number"))
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; after ``--`` come those of the target, as for simple_switch_grpc.

    ``warnings`` has a line for each option that is there and has no effect. Wrong options end the
    process with one line and status 2.
    """
    general = _general()
    words = list(arguments)
    cut = words.index("--") if "--" in words else len(words)
    options = general.parse_args(words[:cut])
    _target().parse_args(words[cut + 1 :], options)
    if options.no_p4 and options.json:
        general.error("--no-p4 and a JSON file exclude each other")
    if not options.no_p4 and not options.json:
        general.error("give a JSON file or --no-p4")
    _check(general, options)
    if options.seed is None:
        options.seed = options.device_id
    options.warnings = [
        f"--{name.replace('_', '-')} has no effect: {why}"
        for name, why in WITHOUT_EFFECT.items()
        if getattr(options, name)
    ]
    if options.log_flush and not options.log_file:
        options.warnings.append("--log-flush has no effect: there is no --log-file")
    if not options.grpc_server_ssl and (
        options.grpc_server_cacert
        or options.grpc_server_cert
        or options.grpc_server_key
        or options.grpc_server_with_client_auth
    ):
        options.warnings.append(
            "TLS is off without --grpc-server-ssl, so the other TLS options have no effect"
        )
    return options


def _check(parser: _Parser, options: argparse.Namespace) -> None:
    """End the process with an error if options contradict each other."""
    if options.log_console and options.log_file:
        parser.error("--log-console and --log-file exclude each other")
    if options.use_files is not None and options.packet_in:
        parser.error("--use-files and --packet-in exclude each other")
    if options.cpu_port == options.drop_port:
        parser.error(f"port {options.cpu_port} cannot be both --cpu-port and --drop-port")
    if options.grpc_server_ssl and not (options.grpc_server_cert and options.grpc_server_key):
        parser.error("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if len(options.interface) > options.max_port_count:
        parser.error(f"{len(options.interface)} interfaces, more than --max-port-count")
    taken: set[int] = {options.cpu_port} if options.cpu_port is not None else set()
    for port, _ in options.interface:
        if port in taken:
            parser.error(f"port {port} is given twice")
        if port == options.drop_port:
            parser.error(f"port {port} is the drop port: choose another, or set --drop-port")
        taken.add(port)
