"""Residuals of gammas: their density by quadrature, their law by simulation, and the way back."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.integrate import trapezoid

from pymc_dp.analyst.record_gibbs.drawing import draw_with
from pymc_dp.analyst.record_gibbs.gamma_residuals import (
    ADDED,
    from_gamma_residuals,
    gamma_residuals,
)
from pymc_dp.graph.intervals import ONCE

SHAPES = [0.05, 0.7, 3.0, 40.0]


@pytest.mark.parametrize("shape", SHAPES)
def test_density_is_that_of_a_transformed_gamma(shape):
    z = np.linspace(-3 * np.sqrt(shape + ADDED) + 1e-6, 15, 200_001)
    _, log_density = from_gamma_residuals([pt.as_tensor(z), *[pt.zeros(1)] * ADDED], shape)
    density = np.nan_to_num(np.exp(log_density.eval(mode=ONCE)))
    assert trapezoid(density, z) == pytest.approx(1, abs=1e-6)
    d = shape + ADDED - 1 / 3
    g = d * (1 + z / (3 * np.sqrt(d))) ** 3
    by_gamma = stats.gamma(shape + ADDED).cdf(g)
    np.testing.assert_allclose(np.diff(by_gamma), density[1:] * np.diff(z), atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
def test_law_and_way_back(shape):
    # false-alarm rate 1e-5 a comparison, five of them; seeds are fixed
    g = stats.gamma(shape).rvs(size=3000, random_state=1)
    rng = pt.random.type.random_generator_type("rng")
    residuals = draw_with(rng, gamma_residuals(pt.as_tensor(g), pt.as_tensor(shape)), [])
    back, _ = from_gamma_residuals(residuals, shape)
    *found, log_g = pytensor.function([rng], [*residuals, back], mode=ONCE)(
        np.random.default_rng(2)
    )
    np.testing.assert_allclose(log_g, np.log(g), rtol=1e-9, atol=1e-9)
    d = shape + ADDED - 1 / 3
    top = stats.gamma(shape + ADDED)
    law = stats.kstest(found[0], lambda z: top.cdf(d * (1 + z / (3 * np.sqrt(d))) ** 3))
    assert law.pvalue > 1e-5
    for log in found[1:]:
        assert stats.kstest(-log, stats.expon.cdf).pvalue > 1e-5
