"""Canary: meters to minus meters, minus meters to segments, segments to faulty links."""
