"""Names of array types for annotations."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Of any element type and shape.
Array = np.ndarray[Any, np.dtype[Any]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
