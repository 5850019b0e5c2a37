# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files that users write, and reports errors in one line with the line number."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from testbed.errors import UserError
from testbed.record.bounded import MOST_YAML, read_bounded
from testbed.record.messages import first_problem, shown

Model = TypeVar("Model", bound=BaseModel)
_BOOL = "tag:yaml.org,2002:bool"
_UNSPEAKABLE = re.compile("[\\0\ud800-\udfff]")
"""Zero bytes and surrogates, which YAML can express but file systems and tables cannot."""


MOST_NODES, MOST_LEVELS = 200_000, 50
"""The most keys and values of a file, those that aliases repeat included, and their nesting.

A list of 30,000 faults has some 150,000 nodes, which PyYAML reads in seconds.
"""


class _TooLarge(yaml.YAMLError):
    """A document is beyond a bound; ``problem`` says which."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem)
        self.problem, self.problem_mark = problem, mark


class _Bounded(yaml.SafeLoader):
    """A loader that raises `_TooLarge` before a document takes much time or memory."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._weights: dict[int, int] = {}  # of nodes with their parts, by identity
        self._composed = self._level = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node, and count it; an alias counts as all that it stands for."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._weights:
                raise _TooLarge("an alias stands for what it is a part of", event.start_mark)
            self._count(self._weights[id(node)], event.start_mark)
            return node
        self._level += 1
        if self._level > MOST_LEVELS:
            raise _TooLarge(f"it has more than {MOST_LEVELS} levels", event.start_mark)
        before = self._composed
        self._count(1, event.start_mark)
        node = super().compose_node(parent, index)
        self._level -= 1
        self._weights[id(node)] = self._composed - before
        return node

    def _count(self, more: int, mark: yaml.Mark) -> None:
        self._composed += more
        if self._composed > MOST_NODES:
            raise _TooLarge(f"it has more than {MOST_NODES:,} keys and values", mark)


def load_yaml(text: str) -> Any:
    """Return the content of a YAML text of a stranger.

    Raises:
        Exception: It is no YAML, or beyond a bound. PyYAML has errors of many kinds.
    """
    loader = _Bounded(text)
    node = loader.get_single_node()
    return loader.construct_document(node) if node else None


class YamlError(UserError):
    """A YAML file cannot be read or is invalid. One line with its name and the line number."""


@dataclass(frozen=True)
class YamlFile:
    """The content of a YAML file whose top level is a mapping.

    Attributes:
        path: The file.
        content: The mapping.
        root: The node tree of the same content, with line numbers.
    """

    path: Path
    content: dict[Any, Any]
    root: yaml.Node

    def line(self, place: tuple[int | str, ...]) -> int:
        """Return the line number of a place as ``("faults", 0, "rate")``, or of its parent."""
        node = self.root
        for part in place:
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                node = node.value[part]
            elif isinstance(node, yaml.MappingNode):
                below = {key.value: value for key, value in node.value if _is_text(key)}
                if part not in below:
                    break
                node = below[part]
        return node.start_mark.line + 1

    def truth_value(self) -> tuple[int, str] | None:
        """Return the line, a number from 1, and text of the first boolean, such as ``yes``.

        None if there is no such word outside quotes.
        """
        for node in _nodes(self.root):
            if node.tag == _BOOL:
                return node.start_mark.line + 1, node.value
        return None

    def valid(self, model: type[Model]) -> Model:
        """Return the content as an instance of the pydantic model ``model``.

        Raises:
            YamlError: The content does not fit the model.
        """
        try:
            return model.model_validate(self.content)
        except ValidationError as error:
            place, reason = first_problem(error)
        where = ".".join(str(part) for part in place)
        line = self.line(place)
        raise YamlError(f"{self.path} line {line}: {where}: {reason}".replace(": : ", ": "))


def read_yaml(path: Path, absent: str, empty: str, *, own: bool = False) -> YamlFile:
    """Read a file whose top level is a mapping in which no key is given twice.

    Args:
        path: The file.
        absent: The message if the file does not exist.
        empty: The message if its top level is no mapping.
        own: Whether the file is a part of this program. Such a file is read by libyaml, several
            times as fast. Files of others are not, because libyaml is C code.

    Raises:
        YamlError: There is none, it cannot be read, or is no such YAML.
    """
    try:
        text = read_bounded(path, MOST_YAML).decode()
    except FileNotFoundError:
        raise YamlError(absent) from None
    except OSError as error:
        raise YamlError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise YamlError(f"cannot read {path}: it is not UTF-8 text") from None
    try:
        loader = (getattr(yaml, "CSafeLoader", yaml.SafeLoader) if own else _Bounded)(text)
        node = loader.get_single_node()
        content = loader.construct_document(node) if node else None
    except Exception as error:  # PyYAML has many kinds, also for a value that is none of its tag
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        why = getattr(error, "problem", None) or getattr(error, "reason", None)
        raise YamlError(f"{path}{where}: not valid YAML: {why or 'it cannot be read'}") from None
    if node is None or not isinstance(content, dict):
        raise YamlError(f"{path}: {empty}")
    for part in _nodes(node):
        if isinstance(part, yaml.ScalarNode) and _UNSPEAKABLE.search(part.value):
            line = part.start_mark.line + 1
            raise YamlError(
                f"{path} line {line}: {shown(part.value)} has characters that a name cannot have"
            )
        if isinstance(part, yaml.MappingNode):
            keys = [key for key, _ in part.value if isinstance(key, yaml.ScalarNode)]
            counts = Counter(key.value for key in keys)
            for key in reversed(keys):
                if counts[key.value] > 1:
                    line = key.start_mark.line + 1
                    raise YamlError(
                        f"{path} line {line}: the key {key.value!r} is given twice: keep one"
                    )
    return YamlFile(path, content, node)


def _is_text(node: yaml.Node) -> bool:
    return isinstance(node.value, str)


def _nodes(root: yaml.Node) -> list[yaml.Node]:
    """Return all nodes in the file's order, each once, even if an anchor refers to itself."""
    found: dict[int, yaml.Node] = {}
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in found:
            continue
        found[id(node)] = node
        if isinstance(node, yaml.MappingNode):
            todo += [part for pair in reversed(node.value) for part in reversed(pair)]
        elif isinstance(node, yaml.SequenceNode):
            todo += reversed(node.value)
    return list(found.values())
