# SPDX-License-Identifier: Apache-2.0
"""Numerical solvers that several methods share: path-link incidence, coordinate descent, least
squares on logarithms, and compiled work on all cores."""
