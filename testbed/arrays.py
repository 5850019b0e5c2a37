# SPDX-License-Identifier: Apache-2.0
"""Aliases of the NumPy array types that annotations use most, and a product of counts.

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


def product(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the matrix product of two arrays of small counts.

    On ARM the linear algebra of NumPy may raise the processor's flags of a division by zero or an
    overflow in lanes that it throws away, and NumPy warns of them. Counts give rise to neither.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return a @ b
