# SPDX-License-Identifier: Apache-2.0
"""Packet ports: AF_PACKET sockets that C threads serve, and pcap files."""
