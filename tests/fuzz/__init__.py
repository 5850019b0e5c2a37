# SPDX-License-Identifier: Apache-2.0
"""Wrong files and messages at random, for as long as one likes: ``python -m tests.fuzz``."""
