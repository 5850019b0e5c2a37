# SPDX-License-Identifier: Apache-2.0
"""Many runs: comparisons, sweeps and calibration, on local processes or a Dask cluster."""
