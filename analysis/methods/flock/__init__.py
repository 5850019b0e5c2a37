# SPDX-License-Identifier: Apache-2.0
"""Flock (CoNEXT 2023): maximum-likelihood components by greedy search."""
