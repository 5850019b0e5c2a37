"""Runs the command line as ``python -m scenarios``; Ctrl-C prints one line, also during the
imports.

A command that sudo started gives up root before it reads any of the user's files.
"""

from scenarios.process.signals import exit_on_signals

if __name__ == "__main__":
    exit_on_signals()
    from scenarios.process.sudo import leave_root

    leave_root()
    from scenarios.command.cli import main

    main()
