# SPDX-License-Identifier: Apache-2.0
"""007 (NSDI 2018): votes, the programs it is compared with, and its theorems."""
