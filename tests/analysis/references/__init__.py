# SPDX-License-Identifier: Apache-2.0
"""The papers' algorithms, written from their texts alone: plain loops over small cases.

Each function follows the numbered lines of its paper and imports nothing of `analysis`. They are
slow on purpose. Where a text is garbled or leaves a choice open, the docstring names the readings
and the one that is taken, in the same words as the method's own docstring.
"""
