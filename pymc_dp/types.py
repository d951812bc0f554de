"""Names of types that the whole package shares."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Matrix", "Neighbours", "Variable", "Vector"]

Array = NDArray[np.float64]
"""Floats, of any shape."""
Vector = NDArray[np.float64]
"""Floats along one axis."""
Matrix = NDArray[np.float64]
"""Floats along two."""
Variable = Any
"""Of a PyTensor graph: its own classes promise less to type checkers than they do."""
Neighbours = Literal["substitute", "add_remove"]
"""Data sets that must be hard to tell apart: one record has other values, or is missing."""
