# SPDX-License-Identifier: Apache-2.0
"""BMv2's Thrift services on a device, and their server."""
