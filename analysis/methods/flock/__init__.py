"""Flock (CoNEXT 2023): maximum-likelihood components by greedy search."""
