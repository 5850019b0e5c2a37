# SPDX-License-Identifier: Apache-2.0
"""Reads the files of other tools and makes the tables of a fabric and of observations from them.

`analysis.importers.registry` lists the readers, each of which is a function of some ten lines.
"""
