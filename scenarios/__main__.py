# SPDX-License-Identifier: Apache-2.0
"""Runs the command line as ``python -m scenarios``; Ctrl-C prints one line, also during the
imports.

A command that sudo started gives up root before it reads any of the user's files.
"""

import sys

if sys.platform in ("win32", "cygwin"):  # before modules that need Unix
    print(
        "canary needs Linux or macOS: on Windows take WSL 2, or the virtual machine in vagrant/ "
        "(docs/project/systems.md)",
        file=sys.stderr,
    )
    sys.exit(2)

from scenarios.process.signals import exit_on_signals

if __name__ == "__main__":
    exit_on_signals()
    from scenarios.process.sudo import leave_root

    leave_root()
    from scenarios.command.cli import main

    main()
