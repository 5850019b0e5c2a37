"""Tests of `scenarios.process`."""
