# SPDX-License-Identifier: Apache-2.0
"""Packet spraying, and counters of what came by each spine (after SprayCheck, arXiv 2605.03702)."""
