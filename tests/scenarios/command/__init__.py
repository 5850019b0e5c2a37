"""Tests of `scenarios.command`."""
