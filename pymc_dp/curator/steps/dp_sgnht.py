"""DP-SGNHT: noised gradients, momentum, and a thermostat for noise of unknown size."""

from typing import Any

import numpy as np
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import StepMethodState
from pymc.util import RandomGenerator

from pymc_dp.compat import dataclass_state
from pymc_dp.curator.steps.langevin import LangevinStep
from pymc_dp.numerics.thermostat import thermostat_step
from pymc_dp.types import Vector


@dataclass_state
class DPSGNHTState(StepMethodState):
    """Everything a chain carries on, all of it public."""

    turn: int
    momentum: np.ndarray
    friction: float


class DPSGNHT(LangevinStep):
    r"""Differentially private stochastic gradient Nosé-Hoover thermostat.

    Position and momentum follow noised gradients, of all records or of random batches, with a
    friction that adapts until the momentum is as warm as it should be: noise of unknown size, such
    as that of batches, is made up for. There is no acceptance test: **draws are biased**, by steps
    in proportion to the square of their size, and by clipped gradients.

    Parameters
    ----------
    *args
        As of :class:`~pymc_dp.curator.steps.langevin.LangevinStep`.
    diffusion : float
        Noise of a kick over time, A: what the gradients' own noise falls short of it is added.
    **kwargs
        As of :class:`~pymc_dp.curator.steps.langevin.LangevinStep`; ``step_size`` is a step h in
        time, so that one of DP-SGLD corresponds to its square.

    Notes
    -----
    Ding et al. (2014), as in section 4.1 of Räisä et al. (2021), split symmetrically with one
    gradient an iteration: half a step of position :math:`\theta`, thermostat
    :math:`\dot\xi = p^\top p / d - 1` and friction :math:`\dot p = -\xi p`, a kick
    :math:`h \nabla \ln p` with noise of variance :math:`2Ah` in all, and the same in reverse
    (the published code updates position and thermostat with the old momentum, which is of first
    order in h). Noise of standard deviation :math:`\sigma` in the gradient is
    :math:`h^2\sigma^2` of that; where it is more, friction settles at
    :math:`h\sigma^2/2` instead of A. One friction stands for all coordinates: noise should be about
    as large in each, in coordinates (``inverse_mass``) that make the posterior round.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> y = np.random.default_rng(1).normal(0.5, 1, size=10_000)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     _ = pm.Normal("y", mu, 1, observed=y)
    ...     step = pmdp.DPSGNHT(
    ...         epsilon=2, delta=1e-6, chains=2, clip_grad=3, step_size=1e-3, batch_fraction=0.1
    ...     )
    ...     idata = pmdp.sample(100, chains=2, cores=1, step=step, progressbar=False)
    >>> sorted(idata.children)
    ['posterior', 'sample_stats']
    """

    name = "dp_sgnht"
    _state_class = DPSGNHTState
    stats_dtypes_shapes: dict[str, Any] = {  # noqa: RUF012
        "diverging": (bool, []),
        "step_size": (np.float64, []),
        "friction": (np.float64, []),
        "noise_sd": (np.float64, []),
    }

    def __init__(self, vars: Any = None, *, diffusion: float = 1.0, **kwargs: Any) -> None:
        if not 0 < diffusion < np.inf:
            raise ValueError(f"diffusion must be positive and finite, not {diffusion!r}.")
        super().__init__(vars, **kwargs)
        self.diffusion = self.friction = float(diffusion)
        self.momentum = np.zeros(self.own.size)

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Claim the whole chain's budget before the first look whose answer leaves."""
        super().setup_chain(rng, tune, draws)
        self.momentum = self.rng.normal(size=self.own.size)
        known = self._known_variance(self.door.noise()).mean()
        self.friction = max(self.diffusion, float(known) * self.first_step_size / 2)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move once, at the price of one noised gradient."""
        theta = self._arrive(point)
        size = self._next_step_size()
        with np.errstate(all="ignore"):  # what leaves the numbers is seen below
            moved, momentum, friction = self._moved(theta, size)
        finite = bool(np.isfinite(moved).all() and np.isfinite(momentum).all())
        finite = finite and bool(np.isfinite(friction))
        if finite:
            theta, self.momentum, self.friction = moved, momentum, friction
        else:
            self.momentum, self.friction = self.rng.normal(size=self.own.size), self.diffusion
        stats = {
            "diverging": not finite,
            "step_size": size,
            "friction": self.friction,
            "noise_sd": self._gradient_sd(self.door.noise()),
        }
        return self._leave(theta, point), [stats]

    def _moved(self, theta: Vector, size: float) -> tuple[Vector, Vector, float]:
        known = self._known_variance(self.door.noise())
        missing = np.maximum(2 * self.diffusion * size - size * size * known, 0.0)

        def kick(displacement: Vector) -> Vector:
            chance = np.sqrt(missing) * self.rng.normal(size=missing.size)
            return size * self._noisy_gradient(theta + self.basis @ displacement) + chance

        displacement, momentum, friction = thermostat_step(
            self.momentum, np.asarray(self.friction), size, kick
        )
        return theta + self.basis @ displacement, momentum, float(friction)
