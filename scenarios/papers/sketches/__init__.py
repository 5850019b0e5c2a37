# SPDX-License-Identifier: Apache-2.0
"""Data structures in which switches count packets, at any size: Canary's meters, HashPipe, and the
size that each sketch needs; the invertible ones are in `testbed.measurements.sketches`. No module
here knows a network: a flow is an ID of 104 bits, its packets are a count.
"""
