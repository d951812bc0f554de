"""Laws of cells in one form, compared with PyMC's own densities; nothing is compiled."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp

from pymc_dp.analyst.count_gibbs.laws import TERMS, UNBOUNDED, law_of
from pymc_dp.graph.intervals import ONCE

FAMILIES = {
    "poisson": lambda: pm.Poisson("c", 3.2),
    "binomial": lambda: pm.Binomial("c", 12, 0.3),
    "negative binomial": lambda: pm.NegativeBinomial("c", mu=4.0, alpha=0.7),
    "beta-binomial": lambda: pm.BetaBinomial("c", alpha=0.6, beta=2.5, n=9),
    "geometric": lambda: pm.Geometric("c", 0.3),
    "uniform": lambda: pm.DiscreteUniform("c", 2, 9),
    "zero-inflated poisson": lambda: pm.ZeroInflatedPoisson("c", 0.6, 2.5),
    "zero-inflated binomial": lambda: pm.ZeroInflatedBinomial("c", 0.6, 8, 0.4),
    "zero-inflated negative binomial": lambda: pm.ZeroInflatedNegativeBinomial(
        "c", 0.6, mu=3.0, alpha=2.0
    ),
    "hurdle poisson": lambda: pm.HurdlePoisson("c", 0.6, 2.5),
    "truncated poisson": lambda: pm.Truncated("c", pm.Poisson.dist(4.0), lower=2, upper=30),
    "truncated below": lambda: pm.Truncated("c", pm.Poisson.dist(4.0), lower=1),
}


def terms_of(law):
    return {
        name: nothing if getattr(law, name) is None else float(getattr(law, name).eval(mode=ONCE))
        for name, nothing in TERMS.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_law_is_the_familys_density(family):
    with pm.Model() as model:
        rv = FAMILIES[family]()
    law = law_of(rv, model.basic_RVs)
    assert law is not None
    assert not law.known_sum
    k = np.arange(int(law.low), min(int(law.high), 60) + 1)
    exact = pm.logp(rv, k).eval(mode=ONCE)
    terms = terms_of(law)
    found = k * terms["phi"] - gammaln(k + 1) + terms["zero"] * (k == 0)
    if law.alpha is not None:
        found += gammaln(k + terms["alpha"])
    if law.trials is not None:
        found -= gammaln(law.trials - k + 1)
    if law.beta is not None:
        found += gammaln(law.trials - k + terms["beta"])
    # PyMC takes some constants in single precision
    np.testing.assert_allclose(found - logsumexp(found), exact - logsumexp(exact), atol=1e-5)


def test_multinomial_cells_have_a_known_sum():
    with pm.Model() as model:
        tables = pm.Multinomial("c", [5, 10**9], [0.2, 0.3, 0.5], shape=(2, 3))
        clumped = pm.DirichletMultinomial("d", 7, [1.0, 2.0, 3.0])
    law = law_of(tables, model.basic_RVs)
    assert law.known_sum
    assert law.trials.tolist() == [5, 10**9]
    assert law.high.tolist() == [[5], [10**9]]
    assert law_of(clumped, model.basic_RVs).alpha.eval(mode=ONCE).tolist() == [1, 2, 3]


def test_bounds_must_be_public_and_families_known():
    with pm.Model() as model:
        n = pm.Poisson("n", 3.0)
        variables = [
            pm.Binomial("among", n, 0.5),
            pm.Categorical("k", [0.5, 0.5]),
            pm.Normal("x"),
            pm.DiscreteUniform("below zero", -3, 3),
            pm.Mixture("mixed", [0.5, 0.5], [pm.Poisson.dist(1.0), pm.Poisson.dist(9.0)]),
        ]
    assert [law_of(rv, model.basic_RVs) for rv in variables] == [None] * 5
    assert law_of(n, model.basic_RVs).high == UNBOUNDED
