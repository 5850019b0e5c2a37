"""Tests of `scenarios.many`."""
