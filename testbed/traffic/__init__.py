# SPDX-License-Identifier: Apache-2.0
"""Traffic: generated flows, replayed captures, and real TCP."""
