"""A run with packets: set up, gone through epoch by epoch, and recorded."""
