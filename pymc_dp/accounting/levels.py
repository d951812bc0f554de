"""Whole numbers that clipped sums are held in: the constants of the privacy argument.

They are compiled into kernels, and their bounds and the scale of the noise must be the same. What a
kernel imports is part of the key under which it is kept on disk, so a change here compiles it anew.
"""

__all__ = ["CHUNK", "CLIPPED", "GRADIENT_LEVELS", "LEVELS", "MOST_COORDINATES"]

LEVELS = 2**32
"""Whole numbers between zero and a clip bound; public, the same for every data set."""

GRADIENT_LEVELS = 2**20 + 2**10
"""Whole numbers between zero and the bound on a gradient's length; public, like ``LEVELS``."""
CLIPPED = 2**20 / GRADIENT_LEVELS
"""Length that gradients are clipped to, in bounds."""
MOST_COORDINATES = 2**14
"""Coordinates of a gradient, whose rounding fits between the clipped length and the bound."""
CHUNK = 1024
"""Records whose gradients stay in the fastest cache, and whose levels add up in 32 bits."""
