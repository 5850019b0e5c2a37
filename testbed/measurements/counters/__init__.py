# SPDX-License-Identifier: Apache-2.0
"""The counters of the switches' interfaces (`counters`)."""
