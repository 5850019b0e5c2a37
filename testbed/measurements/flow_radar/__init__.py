# SPDX-License-Identifier: Apache-2.0
"""FlowRadar (Li, Miao, Kim, Yu, NSDI 2016): all flows of each switch, compared between switches."""
