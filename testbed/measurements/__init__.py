# SPDX-License-Identifier: Apache-2.0
"""Measurements of a run: a folder for each, and how they are made without packets."""
