"""Python files that the user named on the command line: loaded, and told by line what is wrong.

Such a file is the user's own code and is trusted. Its path must never come from anything else: not
from a file of settings or parameters, and not from the record of a run.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class UserFile:
    """A Python file of the user.

    Attributes:
        path: Where it is.
        kind: What it is, for messages: ``scenario`` in ``scenario file mine.py line 3: ...``.
        error: The exception that is raised for whatever its code does wrong.
        clear: Exceptions whose message says enough without the name of their class.
    """

    path: Path
    kind: str
    error: type[ValueError]
    clear: tuple[type[Exception], ...] = ()

    def load(self) -> ModuleType:
        """Run the file as a module of its own, and return that.

        Raises:
            ValueError: It is not there, or does not load: ``error``, in one line.
        """
        name = f"{self.kind} file {self.path.stem}"  # no other module has such a name
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None or not self.path.is_file():
            raise self.error(f"no {self.kind} file {self.path}: check {self.kind.upper()}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        with self.blamed():
            spec.loader.exec_module(module)
        return module

    @contextmanager
    def blamed(
        self,
        function: Callable[..., object] | None = None,
        passed: tuple[type[Exception], ...] = (),
    ) -> Iterator[None]:
        """Run the file's code in a block: what it does wrong is one line with file and line.

        Args:
            function: What is called of it; where that begins is told if nothing closer is known.
            passed: Exceptions that are let through as they are.

        Raises:
            ValueError: Of the class ``error``.
        """
        try:
            yield
        except (KeyboardInterrupt, *passed):
            raise
        except BaseException as error:
            if isinstance(error, SystemExit):
                reason = "calls sys.exit: raise ValueError with a reason instead"
            elif isinstance(error, (self.error, *self.clear)):
                reason = str(error)
            else:
                reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            line = self._line(error, function)
            where = f" line {line}" if line else ""
            said = " ".join(reason.split())
            raise self.error(f"{self.kind} file {self.path}{where}: {said}") from error

    def _line(self, error: BaseException, function: Callable[..., object] | None) -> int | None:
        """The line of the file where an error came up, else the one where ``function`` begins."""
        file = str(self.path.absolute())
        if isinstance(error, SyntaxError) and error.filename == file:
            return error.lineno
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        if lines:
            return lines[-1]
        code = getattr(function, "__code__", None)
        return code.co_firstlineno if code and code.co_filename == file else None
