# SPDX-License-Identifier: Apache-2.0
"""A device: what a program's tables, arrays, groups and digests hold, and who controls it."""
