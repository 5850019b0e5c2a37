# SPDX-License-Identifier: Apache-2.0
"""Localization methods behind one interface, and the scores of their diagnoses.

The package reads columnar observations (`telemetry`), infers which links lose packets (`methods`)
and scores the result (`evaluation`). Of the testbed it imports only `testbed.fabric`,
`testbed.record` and small helpers. `docs/reference/methods.md` lists the methods.
"""
