# SPDX-License-Identifier: Apache-2.0
"""Canary's meters (`canary`): meters, selection of flows, and minus meters."""
