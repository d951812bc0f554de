"""DP Barker: Barker's acceptance test, in which privacy noise is a part of the chance it needs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.accounting.budget import record_weight
from pymc_dp.accounting.composition import GaussianQueries
from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.penalty_kernels import NoisyRatio
from pymc_dp.curator.steps.dp_penalty import DPPenalty
from pymc_dp.numerics.entropy import random_words
from pymc_dp.numerics.logistic_correction import logistic_correction
from pymc_dp.types import Vector

VARIANCE = 1.0
"""Normal part of the logistic chance in the acceptance test, C."""


class DPBarker(DPPenalty):
    r"""Differentially private Metropolis sampling by Barker's test.

    Barker's test accepts a move if its log-ratio :math:`\lambda` plus a logistic number is
    positive. Here that number is made of the privacy noise, normal noise that fills it up to a
    variance of C = 1, and a correction that makes the sum logistic. Each record's log-likelihood
    ratio is clipped to ``clip_logp`` times the length of the move, as in
    :class:`~pymc_dp.DPPenalty`. Moves so long that their noise alone has a larger variance than C
    are rejected unseen, which only their length decides.

    Parameters
    ----------
    vars : list, optional
        Continuous variables to move; all of the model's by default.
    clip_logp, step_size
        As of :class:`~pymc_dp.DPPenalty`.
    batch_size : int, optional
        Use a fresh random batch of this many records in each iteration; or
    batch_fraction : float, optional
        one that every record joins by itself with this probability.
    **kwargs
        The guarantee, ``proposal``, ``tempering`` and others, as of :class:`~pymc_dp.DPPenalty`.

    Notes
    -----
    Algorithm 2 of Räisä (2020), after Heikkilä et al. (2019), with what is wrong there put right:
    accept if :math:`T \lambda + \Delta\ln p + N(0, C - s^2) + V > 0`, :math:`s^2` the variance of
    all the noise in :math:`T \lambda`. The correction V exists nearly
    (:func:`~pymc_dp.numerics.logistic_correction.logistic_correction`): no acceptance probability
    is off by more than 1.1e-6, and :math:`10^6` iterations differ from exact ones in one decision.

    **Batches.** The published algorithm fills up a batch's own variance, which depends on the data,
    so that the noise's variance does too and needs an argument of its own (Theorem 8, its
    constants tightened: epsilon .243 for 20000 iterations of 1000 out of :math:`10^6` records at
    delta = 1e-6). Here every ratio r of the batch is first rounded at random to
    one of its bounds, :math:`\pm\beta`, with mean r. The second moment of what is summed is then
    :math:`\beta^2` whatever the data is: the batch's error has variance :math:`n\beta^2/q` but for
    a part of no more than q of it (and one record's :math:`(n r)^2 / b` on average, with a fixed
    size b), and the published algorithm fills up to as much. Noise is public, the look is an
    ordinary Gaussian one on a random batch, and the same run costs epsilon .031 (.030 with Poisson
    batches) by privacy loss distributions, which is the smaller and what budgets count. That the
    sum is not quite normal changes acceptance by less than one over the batch's size. A batch's
    error alone leaves moves of no more than :math:`\sqrt{q/n}` over ``clip_logp`` and the
    tempering: batches are for tempered likelihoods.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> y = np.random.default_rng(1).normal(0.5, 1, size=10_000)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     _ = pm.Normal("y", mu, 1, observed=y)
    ...     step = pmdp.DPBarker(epsilon=2, delta=1e-6, chains=2, clip_logp=3, step_size=0.005)
    ...     idata = pmdp.sample(100, chains=2, cores=1, step=step, progressbar=False)
    >>> sorted(idata.children)
    ['posterior', 'sample_stats']
    """

    name = "dp_barker"

    def __init__(self, vars: Any = None, **kwargs: Any) -> None:
        super().__init__(vars, **kwargs)
        if self.fraction < 1 and self.allowance.neighbours != "substitute":
            raise ValueError(
                "The variance that batches bring is proportional to the number of records, which "
                'is confidential with neighbours="add_remove": leave batches out.'
            )
        self.correction = logistic_correction(VARIANCE)

    def _check_noise(self, looks: Sequence[GaussianQueries]) -> None:
        noise = looks[0].noise_multiplier * record_weight(self.allowance.neighbours)
        if self.public is not None:
            return  # how long moves are depends on the place
        steps = self.step_size[self.own[self._columns]]
        typical = math.sqrt(steps @ steps if self.proposal == "joint" else np.mean(steps**2))
        largest = math.sqrt(VARIANCE) / (self.tempering * self._noise_scale(noise) * self.clip_logp)
        if typical > largest:
            raise ValueError(
                f"Moves of typical length {typical:.3g} carry more noise than Barker's test can "
                "use, and nearly all would be rejected unseen: make step_size "
                f"{typical / largest:.3g} times smaller, or temper the likelihood, or make fewer "
                "iterations. Nothing was claimed."
            )

    def _noise_scale(self, noise: float) -> float:
        """Tell the standard deviation of all noise in the log-ratio over a record's bound."""
        batch = self.likelihood.n_records / self.fraction if self.fraction < 1 else 0.0
        return math.sqrt((noise / self.fraction) ** 2 + batch)

    def _look(self, theta: Vector, proposal: Vector, length: float) -> NoisyRatio:
        bound = self.bound(length)
        sd = self._noise_scale(self.door.noise()) * bound
        if not (self.tempering * sd) * (self.tempering * sd) <= VARIANCE:
            return NoisyRatio(math.nan, sd, self.tempering)
        if self.fraction == 1:
            return self._noisy_log_ratio(theta, proposal, length)
        return NoisyRatio(self._batch_estimate(theta, proposal, bound), sd, self.tempering)

    def _batch_estimate(self, theta: Vector, proposal: Vector, bound: float) -> float:
        def look(batch: NDArray[np.int64]) -> list[int]:
            if not batch.size:
                return [0]
            words = random_words(batch.size, self.door.generator)
            return [self.records.ratios.batch_two_point(theta, proposal, bound, batch, words)]

        (level,) = self.door.release_batch(look, LEVELS, self.likelihood.n_records)
        return level / LEVELS * bound / self.fraction

    def _accepts(self, noisy: NoisyRatio, log_prior_ratio: float) -> bool:
        if math.isnan(noisy.log_ratio):
            return False
        rest = math.sqrt(max(VARIANCE - (noisy.tempering * noisy.sd) ** 2, 0.0))
        chance = rest * self.rng.normal() + self.correction.draw(self.rng)
        return bool(noisy.tempering * noisy.log_ratio + log_prior_ratio + chance > 0)
