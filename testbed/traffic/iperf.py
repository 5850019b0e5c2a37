# SPDX-License-Identifier: Apache-2.0
"""Real TCP between the hosts of a Mininet network: iperf3 runs transfers on a schedule.

A transfer is one run of iperf3, with a server and a client of its own, so a connection that a
lossy link stalls delays no other. The client offers the data at the transfer's rate, and TCP slows
it down if packets are lost. The packets that each transfer sent and retransmitted are those that
the sender's kernel counted (`testbed.traffic.sockets`), even if the client is killed.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.network.mininet import MininetNetwork
from testbed.network.namespaces import NamespaceError
from testbed.network.network import NetworkError
from testbed.network.requirements import IPERF
from testbed.traffic.flows import Traffic
from testbed.traffic.retransmissions import FlowKey, watch_retransmissions
from testbed.traffic.sockets import Connection, TcpSockets
from testbed.traffic.transfers import Transfers

# What fits into 1500 bytes with timestamps; the fabric's links have room for the shim besides.
SEGMENT = 1448
BUFFER = 32 << 10  # iperf3 ends when the last byte is in the buffer, whose content is then lost
PACING_US = 50_000  # a client sends due data at this interval, like segmentation offload
_PATIENCE_S = 20.0  # that a server may take until it listens
LEAD_NS = 5_000_000_000  # a server is started that long before its client, as it may have to wait
YIELDING = ("nice", "-n", "19")  # a client that waits for its server's last word does so busily
_CLOSED = "control socket has closed unexpectedly"
_NOTHING_CAME = "unable to receive"
"""What iperf3's client says last, and its server before, if links kept them from agreeing."""
AT_ONCE = 256  # clients; a transfer waits while there are as many


@cache
def _patiently() -> tuple[str, ...]:
    """Return iperf3's arguments that set a server's receive timeout to a day.

    Since version 3.10, iperf3 ends after two minutes without data, but a lossy link may stall a
    transfer for longer.
    """
    known = subprocess.run(["iperf3", "--help"], capture_output=True, text=True, check=False)
    return ("--rcv-timeout", "86400000") if "--rcv-timeout" in known.stdout + known.stderr else ()


def need_iperf() -> None:
    """Raise NetworkError if iperf3 is not installed."""
    if IPERF.lacking:
        raise NetworkError(IPERF.lacking)


class Iperf:
    """Carries transfers of a run with iperf3.

    Args:
        network: The network, which is up but not started.
        traffic: The run's flows.
        transfers: The flows that iperf3 carries.
        duration_s: The length of the run in seconds, after which all transfers are ended.

    Raises:
        testbed.traffic.sockets.SocketError: The kernel has no sock_diag.
    """

    def __init__(
        self, network: MininetNetwork, traffic: Traffic, transfers: Transfers, duration_s: float
    ) -> None:
        self._network = network
        self._transfers = transfers
        self._end_ns = int(duration_s * 1e9)
        topology, flow = network.topology, transfers.flow
        self._src, self._dst = traffic.src_host[flow].tolist(), traffic.dst_host[flow].tolist()
        columns = (
            topology.host_ip[traffic.src_host[flow]],
            topology.host_ip[traffic.dst_host[flow]],
            traffic.src_port[flow],
            traffic.dst_port[flow],
        )
        self._keys: list[FlowKey] = list(zip(*(column.tolist() for column in columns), strict=True))
        self._number = {key: number for number, key in enumerate(self._keys)}
        self._last: dict[int, Connection] = {}
        self._sockets = TcpSockets(network.host_pids())
        self._retransmissions = watch_retransmissions(self._sockets)
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        self._clients: dict[int, subprocess.Popen[bytes]] = {}
        self._next_server = self._next_client = 0
        self._finished = self._ended_early = 0
        self._failed: dict[int, str] = {}  # the client's last line, by transfer
        self._lost: set[int] = set()  # those of them whose connection links broke
        self._worst_delay_ns = 0
        self._broken = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="iperf3", daemon=True)
        network.before_stop(self.close)

    # ---- the run -----------------------------------------------------------------------------

    def prepare(self) -> None:
        """Start the servers of the first transfers and wait until they listen.

        Raises:
            NetworkError: One does not listen after `_PATIENCE_S` seconds.
        """
        self._start_servers(LEAD_NS)
        wanted = [(self._dst[n], self._keys[n][3]) for n in self._servers]
        deadline = time.monotonic() + _PATIENCE_S
        while wanted:
            listening = {host: self._sockets.listening(host) for host, _ in wanted}
            wanted = [(host, port) for host, port in wanted if port not in listening[host]]
            if wanted and time.monotonic() > deadline:
                raise NetworkError(f"iperf3 does not start: see {self._server_log(wanted[0][0])}")
            if wanted:
                time.sleep(0.02)

    def start(self) -> None:
        """Start the thread that runs the transfers; to be called when the network has started."""
        self._thread.start()

    def stop(self) -> None:
        """End the transfers that still run; their counts remain available."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def silence(self) -> None:
        """Keep the kernels of the hosts from resending what ended transfers did not deliver."""
        self._network.silence()

    def close(self) -> None:
        """Stop the transfers and close the sockets and the tracing of retransmissions."""
        self.stop()
        self._retransmissions.close()
        self._sockets.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and (now := self._network.now_ns) < self._end_ns:
                self._start_servers(now + LEAD_NS)
                self._start_clients(now)
                self._reap()
                self._wait()
        except (NetworkError, NamespaceError, OSError) as e:
            self._broken = str(e)
        finally:
            self._reap()
            self._ended_early = len(self._clients)
            for process in (*self._clients.values(), *self._servers.values()):
                process.kill()
            for process in (*self._clients.values(), *self._servers.values()):
                process.wait()
            for number in self._clients:
                self._client_log(number).unlink()

    def _wait(self) -> None:
        """Wait until a server or a client is due, but at most 0.1 s."""
        start_ns, due = self._transfers.start_ns, self._end_ns
        if self._next_client < len(start_ns) and len(self._clients) < AT_ONCE:
            due = min(due, int(start_ns[self._next_client]))
        if self._next_server < len(start_ns):
            due = min(due, int(start_ns[self._next_server]) - LEAD_NS)
        self._stop.wait(min(max(due - self._network.now_ns, 0) / 1e9, 0.1))

    def _start_servers(self, until_ns: int) -> None:
        start_ns = self._transfers.start_ns
        while self._next_server < len(start_ns) and start_ns[self._next_server] <= until_ns:
            number = self._next_server
            port = str(self._keys[number][3])
            command = ["iperf3", "-4", "-s", "-1", "-i", "0", "-p", port, *_patiently()]
            log = self._server_log(self._dst[number])
            self._servers[number] = self._network.spawn(self._dst[number], command, log)
            self._next_server += 1

    def _start_clients(self, now_ns: int) -> None:
        transfers = self._transfers
        while self._next_client < len(transfers) and len(self._clients) < AT_ONCE:
            number = self._next_client
            late = now_ns - int(transfers.start_ns[number])
            if late < 0:
                return
            self._worst_delay_ns = max(self._worst_delay_ns, late)
            _, dst_ip, src_port, dst_port = self._keys[number]
            segments = -(-int(transfers.payload[number]) // SEGMENT)
            command = [
                *YIELDING,
                "iperf3",
                "-4",
                "-c",
                str(IPv4Address(dst_ip)),
                "-p",
                str(dst_port),
            ]
            command += ["--cport", str(src_port), "-i", "0", "-w", str(BUFFER)]
            command += ["-n", str(segments * SEGMENT), "-l", str(SEGMENT)]
            command += ["-b", str(max(int(transfers.rate_bps[number]), 1))]
            command += ["--pacing-timer", str(PACING_US)]
            log = self._client_log(number)
            self._clients[number] = self._network.spawn(self._src[number], command, log)
            self._next_client += 1

    def _server_log(self, host: int) -> Path:
        return self._network.logs / f"iperf3-{self._network.topology.host_names[host]}.log"

    def _client_log(self, number: int) -> Path:
        """Return the file of one transfer's client, so that its words are not those of another."""
        name = self._network.topology.host_names[self._src[number]]
        return self._network.logs / f"iperf3-{name}-client-{number}.log"

    def _reap(self) -> None:
        for number, process in list(self._clients.items()):
            if process.poll() is not None:
                if process.returncode:
                    self._failed[number] = message = self._last_words(number)
                    if self._by_links(number, message):
                        self._lost.add(number)
                else:
                    self._finished += 1
                    self._client_log(number).unlink()
                del self._clients[number]
        for number, process in list(self._servers.items()):
            if process.poll() is not None:
                del self._servers[number]

    def _by_links(self, number: int, message: str) -> bool:
        """Return True if links broke the connection of a transfer whose client ended with a line.

        It timed out. Or its server still waits: the connection was open at the client alone, since
        links lost the last packet of each attempt to open it, until the server's kernel gave up.
        Or its server ended, because a message of the client's did not come within ten seconds: so
        iperf3 3.18, of Debian 13.
        """
        if message.endswith(os.strerror(errno.ETIMEDOUT)):
            return True
        broken = tuple(map(os.strerror, (errno.ECONNRESET, errno.EPIPE)))
        server = self._servers.get(number)
        if server is not None and server.poll() is None:
            return message.endswith(broken)
        log = self._server_log(self._dst[number])
        ended = message.endswith((_CLOSED, *broken)) and log.exists()
        return ended and _NOTHING_CAME in log.read_text(errors="replace")

    def _last_words(self, number: int) -> str:
        """Return the last line that a transfer's client wrote."""
        lines = self._client_log(number).read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")

    @property
    def degraded(self) -> list[str]:
        """Return a line for each reason why the transfers' measurements are incomplete, from the
        counts that were read last."""
        found, all_of_them = [], len(self._transfers)
        if self._broken:
            begun = self._next_client
            found.append(f"TCP ended after {begun} of {all_of_them} transfers: {self._broken}")
        if incomplete := self._incomplete():
            failed = f"{len(incomplete)} of {all_of_them} TCP transfers failed"
            found.append(f"{failed}, the first with: {incomplete[0]}")
        if self._sockets.overflows:
            found.append(
                "so many TCP connections ended at once that the kernel could not report all of them"
            )
        return found

    def _incomplete(self) -> list[str]:
        """Return the last line of each failed transfer that never came to send data, unless links
        lost its connection or a host of it was switched off.

        What links do to a connection is a result: the kernel has counted the packets of one that
        times out after a quarter of an hour, or that the server resets when all data is sent.
        """
        sent, _ = self._counted()
        off = self._network.cut_off
        off_too = {n for n in self._failed if {self._src[n], self._dst[n]} & off}
        known = self._lost | off_too
        return [line for n, line in self._failed.items() if not (sent[n] or n in known)]

    # ---- what the hosts saw ------------------------------------------------------------------

    def retransmitted(self) -> npt.NDArray[np.int64]:
        """Return the flows that have retransmitted since the last call, by start, int64[]."""
        keys = self._retransmissions.read()
        numbers = sorted(self._number[key] for key in keys if key in self._number)
        return self._transfers.flow[numbers].astype(np.int64)

    def counts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the packets that each transfer sent and retransmitted so far, int64[N] each."""
        for one in (*self._sockets.ended(), *self._sockets.open()):
            number = self._number.get((one.src_ip, one.dst_ip, one.src_port, one.dst_port))
            if number is not None:
                self._last[number] = one
        return self._counted()

    def _counted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the packets that each transfer had sent and retransmitted when it was last read,
        int64[N] each."""
        sent, again = np.zeros((2, len(self._transfers)), np.int64)
        for number, one in self._last.items():
            sent[number], again[number] = one.sent, one.retransmitted
        return sent, again

    def report(self) -> dict[str, Any]:
        """Return the numbers of finished, failed and other transfers, for ``network.json``."""
        return {
            "transfers": len(self._transfers),
            "finished": self._finished,
            "failed": len(self._failed),
            "ended_with_the_run": self._ended_early,
            "not_begun": len(self._transfers) - self._next_client,
            "worst_delay_ms": self._worst_delay_ns // 1_000_000,
            "retransmissions_from": self._retransmissions.source,
        }
