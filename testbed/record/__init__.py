"""The run directory: the seam between what happened and what a method says about it."""
