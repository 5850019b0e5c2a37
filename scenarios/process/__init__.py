# SPDX-License-Identifier: Apache-2.0
"""The process of a command: the signals that it receives, and the user that it runs as.

Only the network of a run on real packets needs root. A command that sudo started becomes the user
who called sudo before it reads anything, and cannot become root again
(`scenarios.process.sudo`). Two kinds of processes stay root. The root server
(`scenarios.process.root_server`) waits until the command ends, and starts a process for each
network that the command asks for. That process (`scenarios.live.root_worker`) takes settings,
faults and traffic as plain data, checks them (`scenarios.experiment.root_job`), emulates, and sends
back what is to be recorded. The user's process (`scenarios.experiment.root_job`) loads the
scenario, reads captures, writes the run and diagnoses it.

A command that root itself started, without sudo, is root's in all its parts and uses none of this.
"""
