"""Maximum mean discrepancy between two samples."""

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from xarray import DataTree

_BLOCK = 1000


def mmd(
    sample: ArrayLike | DataTree, reference: ArrayLike | DataTree, *, random_seed: int | None = 0
) -> float:
    """Maximum mean discrepancy with a Gaussian kernel of median width.

    Parameters
    ----------
    sample, reference : array_like or DataTree
        Draws in rows and coordinates in columns, or trees whose posterior groups hold the same
        variables.
    random_seed : int, optional
        Of the subsample that sets the kernel's width.

    Returns
    -------
    float
        Near zero for draws of the same distribution.

    Notes
    -----
    Section 4 of Räisä et al. (2021): the width is the median distance between 500 pairs of points
    drawn with replacement from the two samples; the value is the square root of the absolute
    U-statistic. The kernel is ``exp(-||x - y||^2 / (2 width^2))``; section 7.1 of Räisä (2020)
    prints it without the minus.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp import mmd
    >>> rng = np.random.default_rng(0)
    >>> same = mmd(rng.normal(size=(500, 2)), rng.normal(size=(500, 2)))
    >>> other = mmd(rng.normal(size=(500, 2)), rng.normal(1, 1, size=(500, 2)))
    >>> bool(same < 0.1 < other)
    True
    """
    x, y = _rows(sample), _rows(reference)
    if x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(
            f"Samples of shapes {x.shape} and {y.shape}: write two draws or more in rows, and the "
            "same coordinates in columns."
        )
    rng = np.random.default_rng(random_seed)
    pairs = x[rng.integers(len(x), size=500)] - y[rng.integers(len(y), size=500)]
    width = float(np.median(np.linalg.norm(pairs, axis=1)))
    if width == 0:
        return 0.0
    within_x = (_kernel_sum(x, x, width) - len(x)) / (len(x) * (len(x) - 1))
    within_y = (_kernel_sum(y, y, width) - len(y)) / (len(y) * (len(y) - 1))
    between = _kernel_sum(x, y, width) / (len(x) * len(y))
    return float(np.sqrt(abs(within_x + within_y - 2 * between)))


def _kernel_sum(x: NDArray[np.float64], y: NDArray[np.float64], width: float) -> float:
    total = 0.0
    for start in range(0, len(x), _BLOCK):
        squared = scipy.spatial.distance.cdist(x[start : start + _BLOCK], y, "sqeuclidean")
        total += float(np.exp(squared / (-2 * width**2)).sum())
    return total


def _rows(sample: ArrayLike | DataTree) -> NDArray[np.float64]:
    if isinstance(sample, DataTree):
        posterior = sample["posterior"]
        columns = [
            np.asarray(posterior[name]).reshape(
                posterior.sizes["chain"] * posterior.sizes["draw"], -1
            )
            for name in sorted(posterior.data_vars)
        ]
        return np.hstack(columns).astype(float)
    rows = np.asarray(sample, dtype=float)
    return rows[:, None] if rows.ndim == 1 else rows
