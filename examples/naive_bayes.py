"""Naive Bayes from a noisy contingency table: Ju, Awan, Gong & Rao (2022), section 4.

A hundred people belong to one of five classes and have five features with three values each. What
is published is how many people of every class have every value of every feature, 75 counts with
Laplace noise. Nobody's class or features are known, and the class counts are not published.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp

N, CLASSES, FEATURES, VALUES = 100, 5, 5, 3


def simulate(rng, shares, table):
    """Counts of (feature, class, value) of people drawn from the model, without noise."""
    classes = rng.choice(CLASSES, size=N, p=shares)
    counts = np.zeros((FEATURES, CLASSES, VALUES))
    for k in range(FEATURES):
        cumulative = np.cumsum(table[classes, k], axis=1)[:, :-1]
        values = (cumulative < rng.random((N, 1))).sum(axis=1)
        np.add.at(counts[k], (classes, values), 1)
    return counts


def build(released, epsilon):
    """The paper's model. One person changes two cells a feature: sensitivity 2 K."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(CLASSES, 2.0))
        px = pm.Dirichlet("px", np.full((CLASSES, FEATURES, VALUES), 2.0))
        y = pm.Categorical("y", p, shape=N)
        x = pm.Categorical("x", px[y], shape=(N, FEATURES))
        in_class = pt.eq(y[:, None, None, None], np.arange(CLASSES)[:, None])
        cells = in_class * pt.eq(x[:, :, None, None], np.arange(VALUES))
        noise = pmdp.Laplace(epsilon=epsilon, sensitivity=2 * FEATURES)
        pmdp.Privatized("cells", cells.sum(0), noise, observed=pm.Data("released", released))
    return model


def main() -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(CLASSES, 2.0))
    table = rng.dirichlet(np.full(VALUES, 2.0), size=(CLASSES, FEATURES))
    counts = simulate(rng, shares, table)
    for epsilon in (1, 10):
        released = counts + rng.laplace(0, 2 * FEATURES / epsilon, counts.shape)
        with build(released, epsilon):
            idata = pmdp.sample(4000, random_seed=1, progressbar=False)
        print(f"\nepsilon = {epsilon}; the people's shares: {shares.round(2)}")
        print(az.summary(idata, var_names=["p"]))


if __name__ == "__main__":  # chains run in processes of their own
    main()
