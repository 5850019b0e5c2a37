# SPDX-License-Identifier: Apache-2.0
"""Which switch an address, a host or an interface of another tool's file belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import ip_address, ip_network

from testbed.errors import UserError
from testbed.fabric.clos import Fabric
from testbed.record.messages import shown

_HOLE = re.compile(r"\{(\d)\}")
RULE = "--hosts 'leaf{1}=10.{1}.0.0/16'"


class HostRule:
    """A rule from the address of a host to its ToR, such as ``leaf{1}=10.{1}.0.0/16``.

    ``{1}`` on the right stands for a number in the address, and on the left for the same number in
    the name of the ToR. Only as much of the address counts as the length after ``/`` says; several
    rules are separated by commas.

    >>> HostRule("leaf{1}=10.{1}.0.0/16").tor("10.2.0.1")
    'leaf2'
    >>> HostRule("tor{1}_{2}=10.{1}.{2}.0/24, edge=192.168.0.0/16").tor("10.3.1.9")
    'tor3_1'

    Raises:
        UserError: A rule has another form.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], str, int, int]] = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, network = (word.strip() for word in part.partition("="))
            holes = set(_HOLE.findall(network))
            try:
                if not (name and equals) or set(_HOLE.findall(name)) - holes:
                    raise ValueError
                net = ip_network(_HOLE.sub("0", network), strict=False)
                if net.version != 4:
                    raise ValueError
            except ValueError:
                raise UserError(f"--hosts {shown(part)} is no rule: write {RULE}") from None
            octets = net.prefixlen // 8
            given = network.partition("/")[0].split(".")[:octets]
            seen: set[str] = set()
            pattern = r"\.".join(self._octet(octet, seen) for octet in given)
            self._rules.append((re.compile(pattern), name, octets, net.prefixlen))

    @staticmethod
    def _octet(octet: str, seen: set[str]) -> str:
        """Return the pattern of an octet; one that was seen must be the same number."""

        def hole(found: re.Match[str]) -> str:
            again = found[1] in seen
            seen.add(found[1])
            return f"(?P=n{found[1]})" if again else f"(?P<n{found[1]}>[0-9]{{1,3}})"

        return _HOLE.sub(hole, octet)

    def tor(self, address: str) -> str | None:
        """Return the name of the ToR of an address, None if no rule is about it."""
        for pattern, name, octets, _ in self._rules:
            found = pattern.fullmatch(".".join(address.split(".")[:octets]))
            if found:
                return _HOLE.sub(lambda hole, found=found: found[f"n{hole[1]}"], name)
        return None


@dataclass(frozen=True)
class Places:
    """What is known of the names in other tools' files.

    Attributes:
        fabric: The fabric.
        rule: The rule from addresses to ToRs, if there is one.
        hosts: The ToR of each host, by name or address.
        interfaces: The switch at the other end of each interface, by switch and interface.
        addresses: The switch that has each address, and the switch at the other end of its link.
    """

    fabric: Fabric
    rule: HostRule | None = None
    hosts: Mapping[str, str] = field(default_factory=dict)
    interfaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def _known(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.fabric.switch_names)}

    @cached_property
    def _neighbours(self) -> dict[str, list[str]]:
        names, found = self.fabric.switch_names, {}
        ends = zip(self.fabric.link_src.tolist(), self.fabric.link_dst.tolist(), strict=True)
        for src, dst in ends:
            found.setdefault(names[src], []).append(names[dst])
        return found

    def switch(self, name: object) -> str:
        """Return the switch of a name, which may be with a domain; or of a number: the n-th of all,
        sorted by tier and name.

        Raises:
            UserError: The fabric has no such switch.
        """
        text = str(name)
        if text in self._known:
            return text
        if text.partition(".")[0] in self._known and not _is_address(text):
            return text.partition(".")[0]
        if text.isdecimal() and len(text) < 9 and int(text) < self.fabric.n_switches:
            return self.fabric.switch_names[int(text)]
        raise UserError(f"{shown(text)} is not a switch of the fabric")

    def tor(self, host: object) -> str:
        """Return the ToR of a host, by its name or address, or of a ToR itself.

        Raises:
            UserError: It is none that is known.
        """
        text = str(host).strip()
        if text in self.hosts:
            return self.hosts[text]
        if self.rule is not None and _is_address(text) and (named := self.rule.tor(text)):
            return self.switch(named)
        if text in self.addresses:
            return self.switch(self.addresses[text][0])
        if text in self._known or text.partition(".")[0] in self._known:
            return self.switch(text)
        if _is_address(text):
            raise UserError(f"no ToR is known of the address {text}: give a rule: {RULE}")
        return self.switch(text)

    def hop(self, address: object) -> str:
        """Return the switch of a hop of a trace, or ``*`` if it did not answer."""
        text = "*" if address in (None, "", "*", "???") else str(address)
        return "*" if text == "*" else self.tor(text)

    def neighbour(self, switch: str, interface: str) -> str | None:
        """Return the switch at the other end of an interface: as the import of the fabric knew it,
        or the one neighbour that the interface is named after; None if there is none."""
        known = self.interfaces.get(switch, {})
        if interface in known:
            return known[interface]
        around = set(self._neighbours.get(switch, ()))
        words = set(re.split(r"[^A-Za-z0-9_.]+", interface)) | {interface}
        named = [name for name in around if name in words]
        return named[0] if len(named) == 1 else None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
