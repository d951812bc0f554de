"""Regression from noisy sufficient statistics: Bernstein & Sheldon (2019), and what mixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.util import RandomGenerator, get_random_generator
from pymc.vartypes import discrete_types
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.assignment import model_of
from pymc_dp.analyst.regression.conjugate import nearest_valid
from pymc_dp.analyst.regression.distribution import released_statistics
from pymc_dp.analyst.regression.gibbs_ss.conjugate_updates import ConjugateUpdates
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import (
    LatentStatistics,
    latent_statistics,
)
from pymc_dp.analyst.regression.gibbs_ss.parameter_nuts import ParameterNUTS
from pymc_dp.analyst.release import by_name, releases
from pymc_dp.compat import dataclass_state
from pymc_dp.graph.intervals import ONCE
from pymc_dp.numerics.compiled import compiling
from pymc_dp.types import Array

__all__ = ["GibbsSS"]


#: how often statistics that no data can have are drawn again before the old ones stay
_MOST_REDRAWS = 100


@dataclass_state
class GibbsSSState(StepMethodState):
    """What a chain carries on besides its point."""

    variances: list[Array]
    nuts: Any
    tune: bool


class GibbsSS(BlockedStep):
    r"""Sample a linear regression whose sufficient statistics were released with noise.

    For models with :class:`~pymc_dp.RegressionStatistics` that a :func:`~pymc_dp.Privatized`
    releases. An iteration costs the same for any number of records. Laplace noise is normal given a
    variance :math:`\omega^2`, drawn in turn (Algorithm 1, line 6); Gaussian noise needs nothing;
    discrete noise is treated as continuous.

    ``mode="coherent"``, the default, samples the posterior of the model as written. The parameters
    move by NUTS on the density of the release, with the statistics s integrated out:
    :math:`\mathcal N(z;\, n\mu_t,\, n\Sigma_t + \mathrm{diag}(\omega^2))`; then s is drawn exactly
    from its normal conditional. Coefficients are also offered reflected values, which the release
    may hardly tell apart under strong privacy: opposite signs, about zero and about the mean of x,
    and other values with the same mean and variance of y. Any priors; one effective draw in a few
    iterations, under strong privacy too.

    ``mode="paper"`` is Algorithm 1: s given the parameters by the normal approximation, the
    parameters given s as if s were exact (normal-inverse-gamma, and normal-inverse-Wishart for
    latent moments of x, where the model has these priors; NUTS where it has not). These two are not
    conditionals of one distribution, so that at small n it is an approximation beyond the normal
    one; and parameters and statistics hold each other, with autocorrelations of hundreds to
    thousands of iterations under strong privacy.

    Parameters
    ----------
    vars : list of variables, optional
        The latent statistics and the parameters they depend on. Defaults to all of these.
    model : Model, optional
        Defaults to the model in context.
    mode : {"coherent", "paper"}
        See above.
    invalid : {"redraw", "project"}
        In the paper's mode, what happens to drawn statistics of which [X, y]'[X, y] is not
        positive definite, so that no data can have them: they are drawn again, and the last valid
        ones stay after 100 attempts, which is exact for the normal approximation restricted to
        valid statistics; or they are moved to the nearest valid ones, as in the paper, which
        samples no distribution that could be named. The coherent mode needs neither.
    target_accept : float
        Of NUTS.
    rng : RandomGenerator, optional
        Source of randomness outside ``pm.sample``, which seeds each chain itself.
    initial_point : dict, optional
        Defaults to the model's initial point.
    compile_kwargs : dict, optional
        Passed to the compilation of the step's functions.
    blocked : bool
        Must be true: statistics and parameters move together.

    Notes
    -----
    Sampler statistics, by their names in ``sample_stats``: those of NUTS, ``diverging``,
    ``reached_max_treedepth``, ``n_steps`` (leapfrog steps), ``step_size`` and ``acceptance_rate``
    (zero and NaN where there is no NUTS), and ``redraws`` of the paper's mode. PyMC renames two of
    them on the way: the step itself, and its traces, say ``tree_size`` and ``mean_tree_accept``.

    References
    ----------
    Bernstein & Sheldon (2019). Differentially private Bayesian linear regression. NeurIPS 32.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     sigma2 = pm.InverseGamma("sigma2", 3, 0.5)
    ...     theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
    ...     tau2 = pm.InverseGamma("tau2", 3, 0.5)
    ...     mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
    ...     x_moments = pmdp.regression.NormalMoments(mu_x, tau2)
    ...     s = pmdp.RegressionStatistics("s", n=50, coef=theta, sigma2=sigma2, x_moments=x_moments)
    ...     z = [13.1, 15.2, 7.2, -5.0, 10.7]
    ...     released = pmdp.Privatized("z", s, pmdp.Laplace(scale=2), observed=z)
    >>> set(pmdp.explain(model).steps.values())  # what pmdp.sample and pm.sample pick
    {'GibbsSS'}
    """

    name = "gibbs_ss"
    default_blocked = True
    stats_dtypes_shapes: ClassVar[Any] = {
        "diverging": (bool, []),
        "reached_max_treedepth": (bool, []),
        "tree_size": (np.float64, []),
        "step_size": (np.float64, []),
        "mean_tree_accept": (np.float64, []),
        "redraws": (np.int64, []),
    }
    _state_class = GibbsSSState

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        model: pm.Model | None = None,
        mode: Literal["coherent", "paper"] = "coherent",
        invalid: Literal["redraw", "project"] = "redraw",
        target_accept: float = 0.9,
        rng: RandomGenerator = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        if mode not in ("coherent", "paper"):
            raise ValueError(f'mode must be "coherent" or "paper", not {mode!r}.')
        if invalid not in ("redraw", "project"):
            raise ValueError(f'invalid must be "redraw" or "project", not {invalid!r}.')
        self.mode, self.invalid = mode, invalid
        statistics, parameters = _resolve(vars, model)
        self.vars = [model.rvs_to_values[rv] for rv in [*statistics, *parameters]]
        self.tune = True
        point = model.initial_point() if initial_point is None else initial_point
        with compiling(f"GibbsSS for {', '.join(str(var.name) for var in self.vars)}"):
            self._compile(model, parameters, target_accept, point, compile_kwargs or {})
            self.rng = np.random.default_rng(0)
            self.step(point)
        self.rng = get_random_generator(rng)
        self.variances = [latent.first_variances() for latent in self.latents]

    def _compile(
        self,
        model: pm.Model,
        parameters: list[TensorVariable],
        target_accept: float,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> None:
        """Compile the moves of statistics and of parameters."""
        self.latents = self.plan(self.vars, model, compile_kwargs)
        self.conjugate, by_nuts = None, parameters
        if self.mode == "paper":
            self.conjugate = ConjugateUpdates(model, self.latents, parameters, compile_kwargs)
            by_nuts = self.conjugate.others
        self.nuts = None
        if by_nuts:
            self.nuts = ParameterNUTS(
                model,
                by_nuts,
                self.latents,
                collapsed=self.mode == "coherent",
                target_accept=target_accept,
                initial_point=point,
                compile_kwargs=compile_kwargs,
            )
        self.variances = [latent.first_variances() for latent in self.latents]

    @staticmethod
    def plan(
        vars: Sequence[TensorVariable] | None, model: pm.Model, compile_kwargs: Any = None
    ) -> list[LatentStatistics]:
        """Return the latent statistics, or raise what keeps them from being sampled.

        Without `compile_kwargs` what they need is made to be looked at, not to be fast.
        """
        statistics, _ = _resolve(vars, model)
        given = {"mode": ONCE} if compile_kwargs is None else compile_kwargs
        return [LatentStatistics(model, s, given) for s in statistics]

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain: take its generator, the release as it is now, and new variances."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        for latent in self.latents:
            latent.read_release()
        self.variances = [latent.first_variances() for latent in self.latents]
        if self.nuts is not None:
            self.nuts.start_tuning(tune)

    def stop_tuning(self) -> None:
        """Stop adapting NUTS."""
        super().stop_tuning()
        if self.nuts is not None:
            self.nuts.stop_tuning()

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move parameters, statistics and the variances of the noise once."""
        if self.mode == "coherent":
            point, stats = self._move_parameters(point)
            point, redraws = self._draw_statistics(point), 0
        else:
            point, redraws = self._draw_valid_statistics(point)
            point, stats = self._move_parameters(point)
        self.variances = [
            latent.draw_variances(point[latent.value_name], self.rng) for latent in self.latents
        ]
        return point, [{**stats, "redraws": redraws}]

    def _move_parameters(self, point: PointType) -> tuple[PointType, dict[str, Any]]:
        if self.conjugate is not None:
            point = self.conjugate.draw(point, self.rng)
        if self.nuts is None:
            return point, dict(_NO_NUTS)
        return self.nuts.move(point, self.variances, self.rng)

    def _draw_statistics(self, point: PointType) -> PointType:
        drawn = {
            latent.value_name: latent.conditional(point, variances)(self.rng)
            for latent, variances in zip(self.latents, self.variances, strict=True)
        }
        return {**point, **drawn}

    def _draw_valid_statistics(self, point: PointType) -> tuple[PointType, int]:
        """Draw statistics that data can have."""
        redraws = 0
        point = dict(point)
        for latent, variances in zip(self.latents, self.variances, strict=True):
            old = point[latent.value_name]
            draw = latent.conditional(point, variances)
            new = draw(self.rng)
            if self.invalid == "project":
                new = nearest_valid(new, latent.n, latent.layout)
            else:
                attempts = 0
                while not latent.is_valid(new) and attempts < _MOST_REDRAWS:
                    new = draw(self.rng)
                    attempts += 1
                redraws += attempts
                new = new if latent.is_valid(new) else old
            point[latent.value_name] = new
        return point, redraws

    @staticmethod
    def competence(var: TensorVariable, has_grad: bool = False) -> Competence:
        """Ideal for released regression statistics and what they depend on."""
        model = model_of(var)
        taken = model is not None and _moves_with_statistics(model, var)
        return Competence.IDEAL if taken else Competence.INCOMPATIBLE


def _moves_with_statistics(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a variable is a released regression statistic, or one that such a one depends on."""
    if rv.type.dtype in discrete_types:
        return False
    released = [s for r in releases(model) for s in released_statistics(r.statistic, model)]
    return rv in ancestors(released)


_NO_NUTS: dict[str, Any] = {
    "diverging": False,
    "reached_max_treedepth": False,
    "tree_size": 0.0,
    "step_size": np.nan,
    "mean_tree_accept": np.nan,
}


def _resolve(vars: Any, model: pm.Model) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Latent statistics and their parameters, from what the user passed or all of them."""
    listed = list(vars) if isinstance(vars, list | tuple) else [vars]
    given = model.free_RVs if vars is None else [model.values_to_rvs.get(v, v) for v in listed]
    statistics = by_name(rv for rv in latent_statistics(model) if rv in given)
    if not statistics:
        raise ValueError(
            "GibbsSS samples latent regression statistics with their parameters: declare them with "
            'pmdp.RegressionStatistics("s", n=, coef=, sigma2=, x_moments=), release them with '
            "pmdp.Privatized, and pass s too where you pass variables."
        )
    reached = set(ancestors(statistics))
    parameters = by_name(
        rv
        for rv in model.free_RVs
        if rv in reached and rv in given and rv not in statistics and rv.dtype not in discrete_types
    )
    return statistics, parameters
