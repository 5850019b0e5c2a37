# SPDX-License-Identifier: Apache-2.0
"""NetBouncer's probes (`bounce`): from each host to each core switch and back."""
