# SPDX-License-Identifier: Apache-2.0
"""The measurement ``int``: the path that each packet carries, reported by the ToR that delivers
it."""
