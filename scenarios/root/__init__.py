"""The part of a run that needs root, apart from all that is the user's.

Only the network of a run on real packets needs root. A command that sudo started becomes the user
who called sudo before it reads anything, and cannot become root again (`scenarios.root.leaving`).
Two kinds of processes stay root. The keeper (`scenarios.root.keeper`) waits until the command ends,
and starts a process for each network that the command asks for. That process
(`scenarios.root.serving`) takes settings, faults and traffic as plain data, checks them
(`scenarios.root.order`), emulates, and sends back what is to be recorded. The user's process
(`scenarios.root.asking`) loads the scenario, reads captures, writes the run and diagnoses it.

A command that root itself started, without sudo, is root's in all its parts and uses none of this.
"""
