# SPDX-License-Identifier: Apache-2.0
"""Active measurements: NetBouncer's and deTector's probes, and 007's traceroutes."""
