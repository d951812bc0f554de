"""Coefficients and error variance with the Gram matrices held fixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.analyst.regression.normal_x.iteration import (
    draw_coefficients,
    error_variance_terms,
    slice_error_variance,
)
from pymc_dp.numerics.compiled import jit

__all__ = ["fixed_gram_chain"]


@jit
def fixed_gram_chain(
    rng: Any, S: Any, rows: Any, prior: Any, shift: Any, a: float, b: float, tune: int, draws: int
) -> Any:
    """One chain of Alparslan, Yildirim & Birbil (2023), Algorithm 2, with a slice update."""
    p = prior.shape[0]
    coefs, variances = np.empty((draws, p)), np.empty(draws)
    sigma2 = b / rng.standard_gamma(a)
    for t in range(-tune, draws):
        coef = draw_coefficients(rng, S, sigma2, prior, shift, rows)
        values, squares = error_variance_terms(S, coef, rows)
        sigma2 = slice_error_variance(rng, sigma2, values, squares, a, b)
        if t >= 0:
            coefs[t], variances[t] = coef, sigma2
    return coefs, variances
