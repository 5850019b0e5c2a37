"""What asks the network: NetBouncer's and deTector's probes, 007's traceroutes."""
