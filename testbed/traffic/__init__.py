"""Traffic: generated flows, replayed captures, and real TCP."""
