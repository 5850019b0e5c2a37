"""What the measurements mean: every localization method on one face, and how well each did.

Reads columnar observations (`telemetry`), returns verdicts (`diagnosis`), scores them (`metrics`).
Of the testbed it knows only `testbed.fabric.fat_tree`; `methods.METHODS` lists what is on offer.
"""
