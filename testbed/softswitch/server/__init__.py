# SPDX-License-Identifier: Apache-2.0
"""The soft switch as a process: command line, ports, P4Runtime and Thrift."""
