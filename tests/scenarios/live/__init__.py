"""Tests of `scenarios.live`."""
