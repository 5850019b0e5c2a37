# SPDX-License-Identifier: Apache-2.0
"""The soft switch as a process: the command line, one switch, or many."""
