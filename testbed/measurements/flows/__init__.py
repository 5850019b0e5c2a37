# SPDX-License-Identifier: Apache-2.0
"""The end hosts' records of their flows (`flows`)."""
