"""``python -m scenarios``, the command line: a Ctrl-C during the imports is one line, too."""

from scenarios.stopping import at_once

if __name__ == "__main__":
    at_once()
    from scenarios.cli import main

    main()
