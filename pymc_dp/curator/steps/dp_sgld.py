"""DP-SGLD: Langevin moves along noised gradients, of all records or of batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import StepMethodState

from pymc_dp.accounting.budget import record_weight
from pymc_dp.accounting.composition import GaussianQueries
from pymc_dp.compat import dataclass_state
from pymc_dp.curator.steps.langevin import LangevinStep
from pymc_dp.types import Vector


@dataclass_state
class DPSGLDState(StepMethodState):
    """Everything a chain carries on, all of it public."""

    turn: int


class DPSGLD(LangevinStep):
    r"""Differentially private stochastic gradient Langevin dynamics.

    Each iteration estimates the gradient of the log-posterior from all records or from a random
    batch, every record's gradient clipped to length ``clip_grad``, with Gaussian noise, and moves
    by half a step of it plus noise of variance ``step_size``, of which the estimate's own noise is
    a part. There is no acceptance test: **draws are biased**, by steps in proportion to their size,
    and by clipped gradients.

    Parameters
    ----------
    *args, **kwargs
        As of :class:`~pymc_dp.curator.steps.langevin.LangevinStep`.

    Notes
    -----
    Section 4.1 of Räisä et al. (2021), after Wang, Fienberg and Smola (2015) and Li et al. (2019),
    with drift :math:`\frac{\eta}{2} \nabla \ln p` (their code drifts twice as much, which samples
    the square of the posterior). Noise of standard deviation :math:`\sigma` in the gradient brings
    variance :math:`(\eta \sigma / 2)^2` into the move; :math:`\eta` less that is added, which
    needs :math:`\eta \le 4 / \sigma^2`: larger steps are refused before anything is claimed. On a
    normal posterior of precision :math:`\lambda` by the sampler's coordinates the variance of the
    draws is :math:`1 / (1 - \eta\lambda / 4)` times the right one. Noise does not depend on the
    step, so that decreasing steps (``decay``) cost nothing; their draws are to be weighted by
    ``step_size`` in the statistics.

    Batches save time. They save no privacy that full gradients do not save as well by more noise
    on fewer looks, and their own error has to be drowned by smaller steps.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> y = np.random.default_rng(1).normal(0.5, 1, size=10_000)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     _ = pm.Normal("y", mu, 1, observed=y)
    ...     step = pmdp.DPSGLD(
    ...         epsilon=2, delta=1e-6, chains=2, clip_grad=3, step_size=1e-6, batch_fraction=0.1
    ...     )
    ...     idata = pmdp.sample(100, chains=2, cores=1, step=step, progressbar=False)
    >>> sorted(idata.children)
    ['posterior', 'sample_stats']
    """

    name = "dp_sgld"
    _state_class = DPSGLDState
    stats_dtypes_shapes: dict[str, Any] = {  # noqa: RUF012
        "diverging": (bool, []),
        "step_size": (np.float64, []),
        "noise_sd": (np.float64, []),
    }

    def _check_noise(self, looks: Sequence[GaussianQueries]) -> None:
        noise = looks[0].noise_multiplier * record_weight(self.allowance.neighbours)
        largest = 4 / max(float(self._known_variance(noise).max()), 1e-300)
        if self.first_step_size > largest * (1 + 1e-9):
            raise ValueError(
                f"step_size={self.first_step_size:g} is too large for the gradients' noise, which "
                f"alone would heat the chain: at most {largest:.3g} with this guarantee and so "
                "many iterations. Nothing was claimed."
            )

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move once, at the price of one noised gradient."""
        theta = self._arrive(point)
        size = self._next_step_size()
        noise = self.door.noise()
        moved = self._moved(theta, self._noisy_gradient(theta), size, noise)
        finite = bool(np.isfinite(moved).all())
        stats = {
            "diverging": not finite,
            "step_size": size,
            "noise_sd": self._gradient_sd(noise),
        }
        return self._leave(moved if finite else theta, point), [stats]

    def _moved(self, theta: Vector, gradient: Vector, size: float, noise: float) -> Vector:
        with np.errstate(all="ignore"):  # what leaves the numbers is seen by the caller
            missing = np.maximum(size - size * size / 4 * self._known_variance(noise), 0.0)
            chance = self.rng.normal(size=gradient.size) * np.sqrt(missing)
            return theta + self.basis @ (size / 2 * gradient + chance)
