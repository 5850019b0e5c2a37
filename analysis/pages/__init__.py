# SPDX-License-Identifier: Apache-2.0
"""HTML pages of a run, a comparison and a sweep; each is one file that needs no network."""
