"""The soft switch as a process whose P4Runtime server listens on a Unix socket.

The same command line as `testbed.softswitch.process`, which serves P4Runtime on TCP alone; here
``--grpc-server-addr`` may be ``unix:PATH``, as BMv2 understands it too. A switch in a network
namespace of its own is then reached from outside, and by nobody else.
"""

from __future__ import annotations

import os
import sys

from testbed.softswitch.process import parse, run


def main() -> None:
    words = sys.argv[1:]
    socket = ""
    if "--grpc-server-addr" in words:
        at = words.index("--grpc-server-addr")
        if words[at + 1].startswith("unix:"):
            socket = words[at + 1]
            del words[at : at + 2]
    options = parse(words)
    if socket:
        options.grpc_server_addr = socket
    status = run(options)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that wait for clients do not hold it up


if __name__ == "__main__":
    main()
