# SPDX-License-Identifier: Apache-2.0
"""Faults: their specification, the plan of a run, and the injectors that apply it."""
