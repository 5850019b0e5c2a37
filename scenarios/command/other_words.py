# SPDX-License-Identifier: Apache-2.0
"""Words of Mininet, P4's tutorials and containerlab, and the nearest thing here."""

from __future__ import annotations

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "mn": "canary net brings the network up with Mininet's prompt",
    "mininet": "canary net brings the network up with Mininet's prompt",
    "start": "canary net brings the network up with Mininet's prompt",
    "up": "canary net brings the network up with Mininet's prompt",
    "scenario": "canary run is make scenario",
    "clab": "canary export-lab writes the network as a lab for containerlab",
    "containerlab": "canary export-lab writes the network as a lab for containerlab",
    "deploy": "canary export-lab writes a lab, and containerlab deploys it",
    "destroy": "canary clean-net removes what a killed run left of its network",
    "cleanup": "canary clean-net removes what a killed run left of its network",
    "down": "canary clean-net removes what a killed run left of its network",
    "inspect": "canary show prints the result of a run",
    "graph": "canary page draws the fabric of a run",
    "exec": "canary shell opens p4runtime-sh on a switch of the running network",
    "cli": "canary net has a prompt, and canary shell opens p4runtime-sh on a switch",
}
"""What is nearest here to a command of Mininet, p4-utils or containerlab."""

OPTIONS: Mapping[str, str] = {
    "--topo": "--k 4 is the size of a fat-tree, and --topology takes other fabrics",
    "--custom": "--scenario takes a file of your own, and --topology a fabric",
    "--switch": "--backend chooses the switches: virtual, softswitch or bmv2",
    "--controller": "Canary's controller always runs; --backend chooses the switches",
    "--link": "--faults breaks links, and --noise sets what healthy links lose",
    "--loss": "--faults tor0_0-agg0_1:0.05 sets the loss of a link",
    "--bw": "--load is the share of the line rate at which hosts send",
    "--test": "--traffic chooses what hosts send",
    "--lab": "canary export-lab writes a lab for containerlab",
}
"""What is nearest here to an option of those programs."""


def hint(word: str, known: Mapping[str, str]) -> str:
    """Return the nearest thing to a word of another tool; "" if the word is not known."""
    return known.get(word.lower(), "")
