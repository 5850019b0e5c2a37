# SPDX-License-Identifier: Apache-2.0
"""What documents say of the methods in figures; times are in `tests.bench`."""
