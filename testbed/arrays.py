"""Names of the array types that annotations use most, for readers and the type checker.

A `FloatMatrix` has two dimensions; of the others the docstring beside the name says the shape.
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
