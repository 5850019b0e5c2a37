"""What the measurements mean: every localization method on one face, and how well each did.

Reads columnar observations (`telemetry`), returns verdicts (`methods`), scores them
(`evaluation`). Of the testbed it knows only `testbed.fabric` and `testbed.record`.
`docs/reference/methods.md` lists the methods.
"""
