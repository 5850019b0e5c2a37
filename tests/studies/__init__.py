"""What documents say of the methods in figures; times are in `tests.bench`."""
