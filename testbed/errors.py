# SPDX-License-Identifier: Apache-2.0
"""The base class of errors that a user can correct; a command prints them in one line."""

from canary_softswitch.errors import UserError

__all__ = ["UserError"]
