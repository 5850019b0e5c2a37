"""Traffic: generated flows, replayed captures, NetBouncer's probes and 007's traceroutes."""
