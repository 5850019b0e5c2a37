"""One run, from its settings to its summary: set-up, the epoch loop, recording, diagnosis."""
