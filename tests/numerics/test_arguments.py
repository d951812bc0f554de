"""Text is not a number, wherever numbers are taken."""

import pymc as pm
import pytest

import pymc_dp as pmdp

MAKERS = {
    "scale": lambda: pmdp.Laplace(scale="5"),
    "epsilon": lambda: pmdp.DiscreteLaplace(epsilon="1", sensitivity=1),
    "sensitivity": lambda: pmdp.Laplace(epsilon=1, sensitivity=["1", "2"]),
    "sigma": lambda: pmdp.DiscreteGaussian(sigma="5"),
    "rho": lambda: pmdp.Gaussian(rho="1", sensitivity=1),
    "delta": lambda: pmdp.Gaussian(epsilon=1, delta="1e-5", sensitivity=1),
    "sensitivity ": lambda: pmdp.Laplace(scale=5).guarantee("1"),
    "lower": lambda: pmdp.Laplace(scale=5).clamped("0"),
    "step": lambda: pmdp.Laplace(scale=5).rounded("5"),
    "threshold": lambda: pmdp.Laplace(scale=5).thresholded("5", dropped=0),
    "dropped": lambda: pmdp.Laplace(scale=5).thresholded(5, dropped="0"),
    "keep": lambda: pmdp.RandomizedResponse(2, keep="0.75"),
    "n_categories": lambda: pmdp.RandomizedResponse("2", keep=0.75),
    "matrix": lambda: pmdp.RandomizedResponse(matrix=[["0.5", "0.5"], ["0.4", "0.6"]]),
    "candidates": lambda: pmdp.ExponentialMechanism(
        lambda x, c: x, epsilon=1, sensitivity=1, candidates=["1", "2"]
    ),
    "The statistic": lambda: pmdp.Laplace(scale=5).release("3"),
    "The statistic ": lambda: pmdp.DiscreteLaplace(scale=5).release("3"),
    "upper": lambda: pmdp.clamp([1.0], 0, "5"),
    "epsilon ": lambda: pmdp.PrivacyBudget(epsilon="1", delta=1e-6),
}


@pytest.mark.parametrize("name", MAKERS)
def test_text_is_refused(name):
    with pytest.raises(TypeError, match=f"{name.strip()} must be a number"):
        MAKERS[name]()


@pytest.mark.parametrize(
    "mechanism",
    [
        pmdp.Laplace(scale=1),
        pmdp.DiscreteGaussian(sigma=1),
        pmdp.Laplace(scale=1).clamped(lower=0),
        pmdp.Laplace(scale=1).rounded(),
        pmdp.Laplace(scale=1).thresholded(5, dropped=0),
        pmdp.CustomMechanism(lambda released, statistic: -((released - statistic) ** 2)),
        pmdp.Exact(),
    ],
    ids=repr,
)
def test_a_release_of_text_is_refused(mechanism):
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=5)
        with pytest.raises(TypeError, match=r"released value of 'r' must be a number.*'30'"):
            pmdp.Privatized("r", x.sum(), mechanism, observed="30")
