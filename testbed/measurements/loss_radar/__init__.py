# SPDX-License-Identifier: Apache-2.0
"""LossRadar (Li, Miao, Kim, Yu, CoNEXT 2016): the lost packets of each link."""
