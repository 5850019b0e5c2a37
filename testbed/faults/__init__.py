"""Faults: their specification, the plan of a run, and the injectors that apply it."""
