"""Tests of the epochs of a run."""
