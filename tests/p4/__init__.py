"""Tests of the Canary P4 program."""
