# SPDX-License-Identifier: Apache-2.0
"""BMv2 JSON to C, and C to a cached shared library."""
