# SPDX-License-Identifier: Apache-2.0
"""007's traceroutes (`traces`) of the connections that lost packets."""
