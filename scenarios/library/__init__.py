# SPDX-License-Identifier: Apache-2.0
"""The scenarios that come with the testbed, one file each."""
