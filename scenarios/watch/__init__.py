"""To watch a run or a network in a browser of this machine while it goes on."""
