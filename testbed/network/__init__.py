# SPDX-License-Identifier: Apache-2.0
"""The networks that a run can use: virtual time, Mininet, and flows without packets."""
