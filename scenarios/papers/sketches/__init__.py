# SPDX-License-Identifier: Apache-2.0
"""Data structures in which switches count packets, at any size: the sketches that the Canary paper
compares with (FlowRadar, LossRadar, FermatSketch), Canary's meters, HashPipe, and the size that
each needs. No module here knows a network: a flow is an ID of 104 bits, its packets are a count.
"""
