# SPDX-License-Identifier: Apache-2.0
"""The testbed: emulates a fabric, injects faults and records what hosts and switches observe.

It contains no localization method; those are in `analysis`.
"""
