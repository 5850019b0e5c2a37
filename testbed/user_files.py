# SPDX-License-Identifier: Apache-2.0
"""Loads Python files that the user named on the command line, and reports errors with their line.

Such a file is the user's own code and is trusted. Its path must not come from any other source,
such as a file of settings or parameters or the record of a run.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import NoReturn


class _Uncached(SourceFileLoader):
    """Compiles the file each time, and writes no bytecode beside it.

    Bytecode counts as current if the file has the same size and was changed in the same second.
    """

    def path_stats(self, path: str) -> NoReturn:
        """Raise OSError, which tells the import system that bytecode cannot be compared."""
        raise OSError(f"{path} has no bytecode")


@dataclass(frozen=True)
class UserFile:
    """A Python file of the user.

    Attributes:
        path: The path of the file.
        kind: The kind of file, for messages: ``scenario`` in ``scenario file mine.py line 3: ...``.
        error: The class of the exception that is raised for any error of its code.
        clear: Exceptions whose message is clear without the name of their class.
    """

    path: Path
    kind: str
    error: type[ValueError]
    clear: tuple[type[Exception], ...] = ()

    def load(self) -> ModuleType:
        """Run the file as a module and return the module.

        Raises:
            ValueError: The file does not exist or cannot be loaded; of the class ``error``.
        """
        name = f"{self.kind} file {self.path.stem}"  # no other module has such a name
        path = str(self.path.absolute())  # by which `blamed` finds the line
        spec = importlib.util.spec_from_file_location(name, path, loader=_Uncached(name, path))
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
        """Turn exceptions of the file's code in the block into one line with file and line number.

        Args:
            function: The called function; its first line is given if no other line is known.
            passed: Exceptions that are not changed.

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
            message = " ".join(reason.split())
            raise self.error(f"{self.kind} file {self.path}{where}: {message}") from error

    def _line(self, error: BaseException, function: Callable[..., object] | None) -> int | None:
        """Return the line of the file that raised an error, else the first line of ``function``."""
        file = str(self.path.absolute())
        if isinstance(error, SyntaxError) and error.filename == file:
            return error.lineno
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        if lines:
            return lines[-1]
        code = getattr(function, "__code__", None)
        return code.co_firstlineno if code and code.co_filename == file else None
