"""Models, samplers and simulated data of Bernstein & Sheldon (2019), section 4.2.

But for the noise: the exact l1 sensitivity of the five unique statistics of values in [-1, 1] is
16/3, where the paper has 24 and adds noise to the public n. For `prior` each record's x is drawn
from the prior by itself, since that is what the method assumes of the records; all others get
records with a common mean and variance.
"""

import time
import warnings

import numpy as np
import pymc as pm

import pymc_dp as pmdp
from pymc_dp.regression import (
    FixedMoments,
    NormalInverseGamma,
    NormalMoments,
    box_sensitivity,
    conjugate_posterior,
    fourth_moment_sums,
    noisy_moments,
    regression_statistics,
    student_moments,
)

SHAPE, RATE = 20, 0.5
PRECISION = RATE / (SHAPE - 1)
NU, PSI = 50, 1.0
PRIOR = NormalInverseGamma(np.zeros(2), PRECISION * np.eye(2), SHAPE, RATE)
SENSITIVITY = box_sensitivity((-1, 1), (-1, 1)).l1
MOMENT_SENSITIVITY = 6.0  # ranges of x^4, x^3, x^2 and x over [-1, 1]


class SharedMoments(FixedMoments):
    """Fixed moments that can be changed without compiling again."""

    @property
    def parameters(self):
        return pm.Data("second", self.second), pm.Data("covariance", self.covariance)


def moments_of(method):
    if method == "update":
        tau2 = pm.InverseGamma("tau2", NU / 2, PSI / 2)
        return NormalMoments(pm.Normal("mu_x", 0, pm.math.sqrt(tau2)), tau2)
    marginal = student_moments(NU, 0.0, 2 * PSI / NU)
    if method == "prior":
        return marginal
    return SharedMoments(marginal.second, marginal.covariance)


def regression_model(method, n, scale, prior=PRIOR):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", prior.shape, prior.rate)
        sd = pm.math.sqrt(sigma2 / np.diag(prior.precision))
        theta = pm.Normal("theta", prior.mean, sd, shape=2)
        s = pmdp.RegressionStatistics(
            "s", n=pm.Data("n", n), coef=theta, sigma2=sigma2, x_moments=moments_of(method)
        )
        released = pm.Data("released", np.zeros(5))
        pmdp.Privatized("z", s, pmdp.Laplace(scale=scale), observed=released)
    return model


class Runner:
    """One compiled model and step for many releases; each chain tunes afresh, as in pm.sample."""

    def __init__(self, method, n, scale, mode="coherent", prior=PRIOR):
        self.method, self.model = method, regression_model(method, n, scale, prior)
        with self.model:
            self.step = pmdp.GibbsSS(mode=mode)
        self.step.step(self.model.initial_point())  # compiles what is left to compile

    def run(self, released, seed, moments=None, draws=300, tune=300):
        """Draws of (slope, intercept, sigma2), of shape (draws, 3), and CPU seconds."""
        with self.model:
            pm.set_data({"released": released})
            if self.method == "noisy":
                pm.set_data({"second": moments.second, "covariance": moments.covariance})
        start = time.process_time()
        self.step.setup_chain(np.random.default_rng(seed), tune, draws)
        self.point = self.model.initial_point()
        for _ in range(tune):
            self.point, _ = self.step.step(self.point)
        self.step.stop_tuning()
        out, _ = self.go_on(draws)
        return out, time.process_time() - start

    def go_on(self, draws):
        """More draws of the same chain, and CPU seconds."""
        start = time.process_time()
        out = np.empty((draws, 3))
        for i in range(draws):
            self.point, _ = self.step.step(self.point)
            out[i] = *self.point["theta"], np.exp(self.point["sigma2_log__"])
        return out, time.process_time() - start


class RecordsRunner(Runner):
    """The same model with latent records (MCMC-Ind), all of it by RecordGibbs."""

    def __init__(self, n, scale):
        self.method = "records"
        with pm.Model() as self.model:
            sigma2 = pm.InverseGamma("sigma2", SHAPE, RATE)
            theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2 / PRECISION), shape=2)
            tau2 = pm.InverseGamma("tau2", NU / 2, PSI / 2)
            mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
            x = pm.Normal("x", mu_x, pm.math.sqrt(tau2), shape=n)
            y = pm.Normal("y", theta[0] * x + theta[1], pm.math.sqrt(sigma2), shape=n)
            released = pm.Data("released", np.zeros(5))
            noise = pmdp.Laplace(scale=scale)
            pmdp.Privatized("z", regression_statistics(x, y), noise, observed=released)
            self.step = pmdp.RecordGibbs()


def simulate(n, rng, common):
    """Parameters and data from the priors of section 4.2."""
    sigma2 = RATE / rng.gamma(SHAPE)
    theta = rng.normal(0, np.sqrt(sigma2 / PRECISION), size=2)
    tau2 = PSI / 2 / rng.gamma(NU / 2, size=1 if common else n)
    x = rng.normal(rng.normal(0, np.sqrt(tau2)), np.sqrt(tau2), size=n)
    y = rng.normal(theta[0] * x + theta[1], np.sqrt(sigma2))
    return np.array([*theta, sigma2]), x, y


def released_moments(x, epsilon, rng, sensitivity=MOMENT_SENSITIVITY):
    noise = rng.laplace(0, sensitivity / epsilon, size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return noisy_moments(fourth_moment_sums(x) + noise, len(x))


def conjugate_draws(statistics, n, seed, prior=PRIOR):
    tree = conjugate_posterior(statistics, n, prior, draws=2000, random_seed=seed).posterior
    return np.column_stack([tree["coef"].to_numpy()[0], tree["sigma2"].to_numpy()[0]])
