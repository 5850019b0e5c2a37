"""A compiled program, the switches that run it, and control of their state."""
