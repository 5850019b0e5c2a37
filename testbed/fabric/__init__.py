# SPDX-License-Identifier: Apache-2.0
"""The fabric as pure data: switches, links, paths, segments and their codes."""
