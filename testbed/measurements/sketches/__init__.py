# SPDX-License-Identifier: Apache-2.0
"""Invertible sketches of any size: LossRadar, FermatSketch and FlowRadar, which the switches of a
network fill, or a model of one link (`scenarios.papers.canary_sketches`). No module here knows a
network: a flow is an ID of 104 bits, its packets are a count.
"""
