"""Tests of `scenarios.experiment`."""
