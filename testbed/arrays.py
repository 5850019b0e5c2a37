# SPDX-License-Identifier: Apache-2.0
"""Aliases of the NumPy array types that annotations use most.

A `FloatMatrix` has two dimensions. The shape of any other array is given in the docstring of the
function or attribute that uses it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]
FloatArray = npt.NDArray[np.float64]
FloatMatrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
