# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for what must come, on a machine of any speed."""

PATIENCE_S = 600.0
"""Seconds after which a test gives up, because of a defect: nothing that is right takes so long."""
