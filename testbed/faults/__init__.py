"""Faults: what breaks (``specification``) and the injectors that break it."""
