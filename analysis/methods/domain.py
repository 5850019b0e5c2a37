# SPDX-License-Identifier: Apache-2.0
"""What a method's paper assumes of the world, and which of it a run does not keep.

A method may do badly because it is weak, or because the run is not what it was made for. Each class
of a published method declares its `Domain`: the range that its paper evaluates. A run outside of it
gets one line beside the method.
"""

from __future__ import annotations

from dataclasses import dataclass

SPRAYED_SEGMENTS = (
    "one upstream count of a flow stands against those of many downstreams, and a bucket that sees "
    "two pathBFs is dirty (Canary, algorithm 1), so few flows can be compared"
)
SPRAYED_TRACES = "a traceroute shows one of a connection's many paths, not that of the lost packet"
SPRAYED_FLOWS = "a flow's path is unknown, and the model takes it for one of many, not all of them"
"""What methods assume of paths that does not hold where packets are sprayed, by what they read.
Probes name their own way, so nothing changes for them."""

ROUTED = {
    "spray": "packets were sprayed",
    "flowlet": "each flowlet took a way of its own",
    "adaptive": "each packet took the way with the shorter queue",
}
"""What switches did that do not choose an uplink by the hash of a flow, by the setting ROUTING."""


@dataclass(frozen=True)
class World:
    """What is known of a run.

    Attributes:
        links: Directed links of the fabric.
        faulty: How many of them are faulty.
        healthy_loss: The most that a healthy link loses, a share of its packets; None if unknown.
        devices: How many switches failed.
        routing: How switches chose uplinks: ``ecmp``, one for each flow, or one of `ROUTED`.
    """

    links: int
    faulty: int
    healthy_loss: float | None = None
    devices: int = 0
    routing: str = "ecmp"


@dataclass(frozen=True)
class Domain:
    """The range that a method's paper evaluates; None where the paper says nothing.

    Attributes:
        paper: The sections that say so.
        faulty: The largest share of faulty links.
        healthy_loss: The largest loss rate of healthy links.
        links: The fewest directed links of a fabric.
        devices: Whether the method looks for failed devices.
        packets: The fewest packets of an observation that the method counts: of a segment in an
            epoch, or of a probed path.
        many_faulty: What more faulty links than that do to the method, as the end of a sentence.
    """

    paper: str
    faulty: float | None = None
    healthy_loss: float | None = None
    links: int | None = None
    devices: bool | None = None
    packets: int | None = None
    many_faulty: str = ""

    def outside(self, world: World, packets: float | None = None) -> str:
        """Return a sentence on what of a run is outside of this domain; "" if nothing is.

        Args:
            world: The run.
            packets: The median packets of an observation; None if the method has none.
        """
        found, share = [], world.faulty / max(world.links, 1)
        if self.faulty is not None and share > 1.1 * self.faulty:
            why = f": {self.many_faulty}" if self.many_faulty else ""
            found.append(f"{share:.1%} of the links are faulty (it: {self.faulty:.2g}{why})")
        loss = world.healthy_loss
        if self.healthy_loss is not None and loss is not None and loss > self.healthy_loss:
            most = f"{self.healthy_loss:g}" if self.healthy_loss else "nothing"
            found.append(f"healthy links lose up to {loss:g} (it: {most})")
        if self.links is not None and world.links < self.links:
            found.append(f"{world.links:,} links (it: {self.links:,} or more)")
        if self.packets is not None and packets is not None and packets < self.packets:
            found.append(f"{packets:,.0f} packets an observation (it: {self.packets:,} or more)")
        if self.devices is False and world.devices:
            found.append("a device failed, and it looks for links alone")
        return f"outside what {self.paper} evaluates: {'; '.join(found)}" if found else ""
