# SPDX-License-Identifier: Apache-2.0
"""P4Runtime: its calls on a device, and the gRPC server."""
