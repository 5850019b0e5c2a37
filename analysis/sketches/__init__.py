"""What switches keep of their packets, at any size: the sketches that the Canary paper compares
with (FlowRadar, LossRadar, FermatSketch), Canary's own meters, HashPipe, and how large they must
be. They know no network: flows are numbers of 104 bits, packets are counts.
"""
