# SPDX-License-Identifier: Apache-2.0
"""A compiled program, the switches that run it, and control of their state."""
