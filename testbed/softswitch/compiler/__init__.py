"""BMv2 JSON to C, and C to a cached shared library."""
