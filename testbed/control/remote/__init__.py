# SPDX-License-Identifier: Apache-2.0
"""Control of a remote switch with any program: P4Runtime, and Thrift for registers."""
