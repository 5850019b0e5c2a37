# SPDX-License-Identifier: Apache-2.0
"""FermatSketch (ChameleMon, SIGCOMM 2023): the flows that lost packets on each link."""
