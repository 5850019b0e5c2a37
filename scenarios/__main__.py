"""``python -m scenarios``, the command line: a Ctrl-C during the imports is one line, too.

Nothing of the user's is read before a command of sudo's has left root.
"""

from scenarios.process.signals import exit_on_signals

if __name__ == "__main__":
    exit_on_signals()
    from scenarios.process.sudo import leave_root

    leave_root()
    from scenarios.command.cli import main

    main()
