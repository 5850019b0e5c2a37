# SPDX-License-Identifier: Apache-2.0
"""The sparse maximum-likelihood explanation of any telemetry, with an estimated background."""
