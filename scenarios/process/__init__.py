# SPDX-License-Identifier: Apache-2.0
"""The process of a command: the signals that it receives, the user that it runs as, and the
namespaces in which it can have a network of real packets.

Nothing here needs root. A command that sudo started becomes the user who called sudo before it
reads anything (`scenarios.process.sudo`). A command with a network of real packets is started again
in a user and a network namespace of its own (`scenarios.process.namespace`). A command that root
itself started, without sudo, is root's in all its parts, and makes its networks where it is.
"""
