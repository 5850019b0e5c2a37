# SPDX-License-Identifier: Apache-2.0
"""The base class of errors that a user can correct; a command prints them in one line."""


class UserError(ValueError):
    """Something that the user gave cannot be used: a setting, a file, a run, a value of an option;
    or the machine lacks or refuses something: a compiler, a network, an answer of a switch.

    The message is one line that says what is wrong and what to do. `canary` prints it and exits
    with code 2. Any other exception is a defect of the testbed and shows its traceback.
    """
