"""The run directory, which records a run's measurements, ground truth and diagnoses."""
