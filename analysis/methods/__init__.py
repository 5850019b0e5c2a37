# SPDX-License-Identifier: Apache-2.0
"""The localization methods, all on the face of `analysis.methods.base`."""
