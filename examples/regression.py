"""Linear regression from noisy sums of clamped data: Ju, Awan, Gong & Rao (2022), section 5.

A hundred people have two covariates x and an outcome y, both confidential. What is published are
the sums of products that least squares needs, of values clamped to [-10, 10] and scaled to [-1, 1],
with Laplace noise. The regression is that of the unclamped values.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp

N, BOUND, VARIANCE = 100, 10.0, 2.0
#: of x'y, y'y and x'x without its first entry, as printed in the paper: p^2 + 3 p + 3
SENSITIVITY = 13
MEAN = (0.9, -1.17)


def sums(x, y):
    """x'y, y'y and the unique entries of x'x less the number of records; NumPy or PyTensor."""
    x, y = pmdp.clamp(x, -BOUND, BOUND) / BOUND, pmdp.clamp(y, -BOUND, BOUND) / BOUND
    design = pt.concatenate([pt.ones_like(x[:, :1]), x], axis=1)
    products = (design.T @ design)[np.triu_indices(3)][1:]
    return pt.concatenate([design.T @ y, (y**2).sum()[None], products])


def build(released, epsilon, mean=MEAN, n=N):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        x = pm.MvNormal("x", np.asarray(mean), np.eye(2), shape=(n, 2))
        y = pm.Normal("y", beta[0] + x @ beta[1:], VARIANCE**0.5, shape=n)
        noise = pmdp.Laplace(epsilon=epsilon, sensitivity=SENSITIVITY)
        pmdp.Privatized("sums", sums(x, y), noise, observed=pm.Data("released", released))
    return model


def main() -> None:
    rng = np.random.default_rng(1)
    beta = rng.normal(0, 2, size=3)
    x = rng.normal(MEAN, 1, size=(N, 2))
    y = beta[0] + x @ beta[1:] + rng.normal(0, VARIANCE**0.5, size=N)
    exact = sums(pt.as_tensor(x), pt.as_tensor(y)).eval()
    for epsilon in (1, 10):
        released = exact + rng.laplace(0, SENSITIVITY / epsilon, exact.shape)
        with build(released, epsilon):
            idata = pmdp.sample(8000, random_seed=1, progressbar=False)
        print(f"\nepsilon = {epsilon}; the true coefficients: {beta.round(2)}")
        print(az.summary(idata))


if __name__ == "__main__":  # chains run in processes of their own
    main()
