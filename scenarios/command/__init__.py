# SPDX-License-Identifier: Apache-2.0
"""The command line: a file for each command, and the options that they share."""
