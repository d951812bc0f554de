"""NormalX: regression from several holders' noisy statistics, normal features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.pytensorf import compile as pm_compile
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.util import RandomGenerator, get_random_generator
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.assignment import model_of
from pymc_dp.analyst.regression.normal_x.gram_tuning import GramTuning
from pymc_dp.analyst.regression.normal_x.holder_model import (
    HolderModel,
    holder_model,
    is_conjugate,
    is_statistic,
)
from pymc_dp.analyst.regression.normal_x.iteration import State, iterate
from pymc_dp.compat import ProgressHooks, dataclass_state
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.numerics.compiled import compiling

__all__ = ["NormalX"]


@dataclass_state
class NormalXState(StepMethodState):
    """What a chain carries on besides its point."""

    tuning: GramTuning


class NormalX(ProgressHooks, BlockedStep):
    r"""Sample a regression from the noisy X'X and X'y of several data holders.

    For models declared with :func:`~pymc_dp.HolderStatistics`; ``pm.sample`` picks this step by
    itself. An iteration costs O(J d^3), whatever the number of records (Alparslan, Yildirim &
    Birbil 2023, Algorithm 1, MCMC-normalX). Parameters with conjugate priors are moved here too:
    normal coefficients, inverse-gamma error variance, inverse-Wishart covariance of the features
    (with an intercept: and a normal mean whose covariance is that over a number). Others are left
    to NUTS.

    X'y is integrated out while all else moves. Coefficients and covariance are drawn from their
    conditionals (equations 11 and 12), the error variance by a slice update, Laplace noise as a
    normal mixture. The Gram matrices S_j move in one of two ways:

    * ``move="hamiltonian"``: all S_j at once along a Hamiltonian trajectory in log-Cholesky
      coordinates, with coefficients and covariance integrated out. The paper asks for such a move.
    * ``move="wishart"``: each S_j by a Wishart proposal centred at its value, as in the paper. It
      mixes slowly; it is there to compare.

    Parameters
    ----------
    vars : list of variables, optional
        Defaults to all that the step can move; must hold both variables of `HolderStatistics`.
    model : Model, optional
        Defaults to the model in context.
    rng : RandomGenerator, optional
        Source of randomness outside ``pm.sample``, which seeds each chain itself.
    initial_point : dict, optional
        Not read.
    compile_kwargs : dict, optional
        Passed to the compilation of the step's functions.
    move : {"hamiltonian", "wishart"}
        How the Gram matrices move.
    target_accept : float, optional
        Acceptance that tuning aims at: 0.8, and for Wishart proposals 0.2, as in the paper.
    blocked : bool
        Must be true.

    Notes
    -----
    All adaptation ends with tuning. Sampler statistics: ``accept``, the mean acceptance probability
    of the holders' moves, ``step_size`` (for Wishart proposals their degrees of freedom) and
    ``n_leapfrog``. Noise on the integers is taken as noise on the line.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     coef = pm.Normal("coef", 0, 2, shape=1)
    ...     sigma2 = pm.InverseGamma("sigma2", 3, 1)
    ...     (one,) = pmdp.HolderStatistics("h", n=90, coef=coef, sigma2=sigma2, cov_x=[[1.0]])
    ...     released = pmdp.Privatized("r", one, pmdp.Laplace(scale=9), observed=[80.0, 45.0])
    ...     step = pmdp.NormalX()
    """

    name = "normal_x"
    default_blocked = True
    progress_statistics: ClassVar[dict[str, str]] = {"accept": "Accept"}
    stats_dtypes_shapes: ClassVar[Any] = {
        "accept": (np.float64, []),
        "step_size": (np.float64, []),
        "n_leapfrog": (np.int64, []),
    }
    _state_class = NormalXState

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        move: str = "hamiltonian",
        target_accept: float | None = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        if move not in ("hamiltonian", "wishart"):
            raise ValueError(f'move must be "hamiltonian" or "wishart", not {move!r}.')
        found = self.plan(vars, model)
        self.hamiltonian = move == "hamiltonian"
        self.target_accept = target_accept or (0.8 if self.hamiltonian else 0.2)
        if found.releases.first and not self.hamiltonian:
            raise ValueError(
                "Wishart proposals cannot keep the number of records in S: with an intercept use "
                'move="hamiltonian".'
            )
        self.vars = [model.rvs_to_values[rv] for rv in found.owned]
        self.releases, self.priors, self.sources = found.releases, found.priors, found.sources
        self.rng = get_random_generator(rng)
        self.tuning = GramTuning.start(self.releases, self.priors, 0)
        with compiling(f"NormalX for {', '.join(str(var.name) for var in self.vars)}"):
            self._compile(model, found, compile_kwargs or {})
            held, self.rng = self.rng, np.random.default_rng(0)
            self.step(model.initial_point() if initial_point is None else initial_point)
            self.rng = held

    @staticmethod
    def plan(vars: Sequence[TensorVariable] | None, model: pm.Model) -> HolderModel:
        """Return the part of the model to sample, or raise what keeps it from being sampled."""
        return _restricted(holder_model(model), vars, model)

    def _compile(self, model: pm.Model, found: HolderModel, compile_kwargs: dict[str, Any]) -> None:
        """Compile the way from a point to the state, and back to the values of what was moved."""
        options = {**compile_kwargs, "mode": quick_mode(compile_kwargs.get("mode"))}
        parameters = found.parameters
        outputs = model.replace_rvs_by_values([found.S, found.z, *parameters.values()])
        inputs = [v for v in explicit_graph_inputs(outputs) if v in model.value_vars]
        self.inputs = [str(v.name) for v in inputs]
        self.read = pm_compile(inputs, outputs, random_seed=False, **options)
        self.read.trust_input = True

        natural = {name: var.type(name) for name, var in parameters.items()}
        S, z = found.S.type("S"), found.z.type("z")
        replace: dict[Any, Any] = {var: natural[name] for name, var in parameters.items()} | {
            found.S: S,
            found.z: z,
        }
        values = []
        for rv in found.owned:
            transform = model.rvs_to_transforms.get(rv)
            value: Any = replace[rv]
            if transform is not None:
                args = rv.owner.inputs
                kept = [a for a in args if hasattr(a.type, "dtype")]
                swapped = iter(clone_replace(kept, replace, rebuild_strict=False))
                args = [next(swapped) if hasattr(a.type, "dtype") else a for a in args]
                value = transform.forward(value, *args)
            values.append(value)
        self.outputs = [str(v.name) for v in self.vars]
        self.write = pm_compile(
            [S, z, *natural.values()],
            values,
            random_seed=False,
            on_unused_input="ignore",
            **options,
        )
        self.write.trust_input = True

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain: take its generator and forget what the last one learned."""
        super().setup_chain(rng, tune, draws)
        for source in self.sources:  # pm.set_data may have changed them
            source.store((self.releases.S_hat, self.releases.z_hat), source.read())
        self.tuning = GramTuning.start(self.releases, self.priors, tune)

    def stop_tuning(self) -> None:
        """Freeze the moves."""
        super().stop_tuning()
        self.tuning.freeze()

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """One iteration over everything that the step owns."""
        first = self.releases.first
        S, z, coef, sigma2, mean, cov = self.read(*(point[name] for name in self.inputs))
        if first:
            S, z, coef = np.roll(S, 1, axis=(1, 2)), np.roll(z, 1, axis=1), np.roll(coef, 1)
        S, z, coef = (np.ascontiguousarray(v) for v in (S, z, coef))
        state = State(S, z, coef, float(sigma2), mean, cov)
        tuning = self.tuning
        if tuning.active and tuning.count == 0:
            state = state._replace(S=tuning.first_matrices(self.rng, self.releases))
        proposal = tuning.proposal(self.rng, self.hamiltonian)
        state, accept = iterate(self.rng, state, self.releases, self.priors, proposal)
        if tuning.active:
            tuning.learn(
                state, accept, self.hamiltonian, self.target_accept, self.releases, self.priors
            )
        S, z, coef, sigma2, mean, cov = state
        if first:
            S, z, coef = np.roll(S, -1, axis=(1, 2)), np.roll(z, -1, axis=1), np.roll(coef, -1)
        moved = self.write(S, z, coef, np.asarray(sigma2), mean, cov)
        stats = {
            "accept": float(np.mean(accept)),
            "step_size": proposal.step_size if self.hamiltonian else float(np.mean(tuning.degrees)),
            "n_leapfrog": proposal.n_leapfrog if self.hamiltonian else 0,
        }
        return {**point, **dict(zip(self.outputs, moved, strict=True))}, [stats]

    @staticmethod
    def competence(var: TensorVariable, has_grad: bool = False) -> Competence:
        """Ideal for holders' statistics, and for their parameters with conjugate priors."""
        model = model_of(var)
        owned = model is not None and (is_statistic(var) or is_conjugate(model, var))
        return Competence.IDEAL if owned else Competence.INCOMPATIBLE


def _restricted(found: HolderModel, vars: Any, model: pm.Model) -> HolderModel:
    """Leave parameters that were given to other steps alone."""
    if vars is None:
        return found
    given = [
        model.values_to_rvs.get(v, v) for v in (vars if isinstance(vars, list | tuple) else [vars])
    ]
    for rv in (found.S, found.z):
        if rv not in given:
            raise ValueError(
                f"NormalX moves {found.S.name!r} and {found.z.name!r} together: pass both."
            )
    for rv in given:
        if rv not in found.owned:
            raise ValueError(
                f"NormalX cannot move {rv.name!r}: it moves normal coefficients, an inverse-gamma "
                "error variance and an inverse-Wishart covariance that nothing else in the model "
                f"uses. Leave {rv.name!r} out, and PyMC picks a step for it."
            )
    return found.keeping(given)
