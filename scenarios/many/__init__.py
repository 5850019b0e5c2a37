"""Many runs: comparisons, sweeps and calibration, on local processes or a Dask cluster."""
