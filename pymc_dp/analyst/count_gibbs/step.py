"""Sample tables of counts of which noisy cells, or noisy sums of cells, were released."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.util import RandomGenerator, get_random_generator
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.assignment import model_of
from pymc_dp.analyst.count_gibbs.cells import (
    CountTable,
    cell_parameters,
    cell_variables,
    count_table,
)
from pymc_dp.analyst.count_gibbs.discrete import check_numbers, tell_of_switches
from pymc_dp.analyst.count_gibbs.drawn import DrawnShares
from pymc_dp.analyst.count_gibbs.integrated import IntegratedCells
from pymc_dp.analyst.count_gibbs.moved import MovedCells
from pymc_dp.analyst.count_gibbs.noise import ReleasedComponents
from pymc_dp.analyst.count_gibbs.start import (
    agreeing,
    known_totals,
    table_lattice,
    tell_of_tables,
)
from pymc_dp.compat import ProgressHooks, dataclass_state
from pymc_dp.numerics.compiled import compiling
from pymc_dp.numerics.nuts import ACCEPT, DIVERGING, DOUBLINGS, LEAPS
from pymc_dp.numerics.nuts_tuning import NUTSTuning
from pymc_dp.types import Vector

__all__ = ["CountGibbs"]

_log = logging.getLogger(__name__)

#: acceptance that NUTS is tuned to: over parameters, and over parameters and cells
PARAMETER_ACCEPT, JOINT_ACCEPT = 0.8, 0.65


@dataclass_state
class CountGibbsState(StepMethodState):
    """What a chain carries on besides its point."""

    tuning: Any
    carried: Any
    tune: bool


class CountGibbs(ProgressHooks, BlockedStep):
    r"""Sample latent counts given noisy cells, noisy sums of cells and exact totals.

    For latent counts (``pm.Poisson``, ``Binomial``, ``NegativeBinomial``, ``BetaBinomial``,
    ``Multinomial``, ``DirichletMultinomial``, ``Geometric``, ``DiscreteUniform``, zero-inflated,
    hurdle and truncated ones) whose :func:`~pymc_dp.Privatized` releases are linear maps of them
    with noise added to components. What one draw costs depends on the number of cells, not on the
    counts. The parameters that cells depend on move in the same step.

    Where noise was added to every cell and cells are independent given the parameters, the cells
    are summed out,

    .. math:: p(y \mid \theta) = \prod_i \sum_k p(k \mid \theta_i)\, \eta(y_i \mid k),

    over the counts that the noise leaves possible. The parameters move by NUTS on that density;
    then every cell is drawn from its conditional, exactly.

    Parameters
    ----------
    vars : list of variables, optional
        Cells, and parameters of theirs. Defaults to all cells and the continuous variables that
        they depend on.
    model : Model, optional
        Defaults to the model in context.
    target_accept : float, optional
        Of NUTS. By default 0.8, and 0.65 where cells are among its coordinates: the density then
        has steps, and kinks where the noise has, and shorter steps gain less than they cost.
    rng : RandomGenerator, optional
        Source of randomness outside ``pm.sample``, which seeds each chain itself.
    initial_point : dict, optional
        Defaults to the model's initial point.
    compile_kwargs : dict, optional
        Passed to the compilation of the step's functions.
    blocked : bool
        Must be true: cells and parameters move together.

    Notes
    -----
    Sampler statistics are those of NUTS: ``diverging``, ``reached_max_treedepth``, ``n_steps``
    (leapfrog steps), ``step_size`` and ``acceptance_rate``.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     rate = pm.Gamma("rate", 2, 0.1, shape=3)
    ...     counts = pm.Poisson("counts", rate)
    ...     noise = pmdp.DiscreteGaussian(sigma=2)
    ...     cells = pmdp.Privatized("cells", counts, noise, observed=[14, 3, 31])
    ...     step = pmdp.CountGibbs()
    """

    name = "count_gibbs"
    default_blocked = True
    stats_dtypes_shapes: ClassVar[Any] = {
        "diverging": (bool, []),
        "reached_max_treedepth": (bool, []),
        "tree_size": (np.float64, []),
        "step_size": (np.float64, []),
        "mean_tree_accept": (np.float64, []),
    }
    _state_class = CountGibbsState

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        model: pm.Model | None = None,
        target_accept: float | None = None,
        rng: RandomGenerator = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        table = self.plan(vars, model)
        parameters = _resolve(vars, model)[1]
        self.vars = [model.rvs_to_values[rv] for rv in [*parameters, *table.cells]]
        self.cells = [str(model.rvs_to_values[rv].name) for rv in table.cells]
        self.shapes = table.shapes
        self.target_accept = target_accept
        self.rng = get_random_generator(rng)
        self.tune = True
        point = model.initial_point() if initial_point is None else initial_point
        self.released = ReleasedComponents(model, table)
        self.released.tell_of_rounding()
        tell_of_switches(model, table)
        alone = IntegratedCells.windows_of(table, self.released) is not None
        rest = (parameters, self.released, point, compile_kwargs or {})
        self.engine: Any = None if alone else DrawnShares.of(model, table, *rest)
        if self.engine is None:
            engine: Any = IntegratedCells if alone else MovedCells
            self.engine = engine(model, table, *rest)
        self.tuning = NUTSTuning.start(self.engine.layout.size, 0)
        self.carried: Any = None
        self._length = 0
        self._fresh = True
        #: moves of this chain that are still to come, and how readily NUTS accepted so far
        self._left, self._accepted = 0, 0.0

    @staticmethod
    def plan(vars: Sequence[TensorVariable] | None, model: pm.Model) -> CountTable:
        """Return the cells and their releases, or raise what keeps them from being sampled."""
        table = count_table(model, _resolve(vars, model)[0])
        totals = known_totals(table, ReleasedComponents(model, table).components())
        lattice = table_lattice(table, totals)
        tell_of_tables(table, lattice)
        agreeing(table, lattice, totals, np.zeros(table.size))
        return table

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain: take its generator and the release as it is now."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.engine.read_release()
        self._length, self._fresh = tune, True
        self._left, self._accepted = tune + draws, 0.0

    def stop_tuning(self) -> None:
        """Stop adapting NUTS."""
        super().stop_tuning()
        self.tuning.freeze()

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move parameters and cells; the first move of a chain compiles."""
        if not self._fresh:
            return self._moved(point)
        with compiling(f"CountGibbs for {', '.join(str(var.name) for var in self.vars)}"):
            return self._moved(point)

    def _moved(self, point: PointType) -> tuple[PointType, StatsType]:
        layout = self.engine.layout
        theta, given = layout.theta_of(point), layout.given_of(point)
        counts = np.concatenate([np.ravel(point[name]) for name in self.cells]).astype(float)
        if self._fresh:
            theta, counts = self._begin(theta, given, counts)
        tuning = self.tuning
        step_size, doublings = tuning.step.step_size, tuning.doublings
        q, report = self.engine.move(self.rng, theta, given, counts, tuning, self.carried)
        if tuning.active:
            default = JOINT_ACCEPT if q.size > theta.size else PARAMETER_ACCEPT
            tuning.learn(q, float(report[ACCEPT]), self.target_accept or default)
        self._left -= 1
        self._accepted += report[ACCEPT]
        if self._left == 0 and theta.size and not self._accepted:
            _log.warning(
                "No move of %s was accepted in a whole chain: its draws are where it started, and "
                "say nothing of the posterior. Start elsewhere with initvals=, and look for "
                "parameters at which a rate or probability is zero or no number.",
                ", ".join(str(var.name) for var in self.vars),
            )
        new = layout.point_of(point, theta, _NO_TABLE)
        start = 0
        for name, shape in zip(self.cells, self.shapes, strict=True):
            stop = start + int(np.prod(shape))
            new[name] = counts[start:stop].reshape(shape).astype(point[name].dtype)
            start = stop
        stats = {
            "diverging": bool(report[DIVERGING]),
            "reached_max_treedepth": bool(report[DOUBLINGS] == doublings),
            "tree_size": report[LEAPS],
            "step_size": step_size if report[LEAPS] else np.nan,
            "mean_tree_accept": report[ACCEPT],
        }
        return new, [stats]

    def _begin(self, theta: Vector, given: Vector, counts: Vector) -> tuple[Vector, Vector]:
        """Find where a chain starts, and scales to tune from."""
        self._fresh = False
        theta, counts, carried, scales = self.engine.begin(self.rng, theta, given, counts)
        if self._length or len(self.tuning.factor) != len(scales):
            self.tuning, self.carried = NUTSTuning.start(len(scales), self._length), carried
            self.tuning.factor, self.tuning.trusted = scales, scales.ndim == 2
        return theta, counts

    @staticmethod
    def competence(var: TensorVariable, has_grad: bool = False) -> Competence:
        """Ideal for cells that releases are linear maps of, and for what these depend on."""
        model = model_of(var)
        if model is None:
            return Competence.INCOMPATIBLE
        check_numbers(model)
        cells = cell_variables(model)
        taken = bool(cells) and (var in cells or var in cell_parameters(model, cells))
        return Competence.IDEAL if taken else Competence.INCOMPATIBLE


_NO_TABLE = np.empty((0, 0))


def _resolve(vars: Any, model: pm.Model) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Cells and their parameters, from what the user passed or all of them."""
    check_numbers(model)
    found = cell_variables(model)
    listed = list(vars) if isinstance(vars, list | tuple) else [vars]
    given = None if vars is None else [model.values_to_rvs.get(v, v) for v in listed]
    cells = found if given is None else [rv for rv in found if rv in given]
    if not cells:
        raise ValueError(
            "CountGibbs samples latent counts of which noisy cells or noisy sums of cells were "
            'released: counts = pm.Poisson("counts", rate, shape=n), then pmdp.Privatized("cells", '
            "counts, pmdp.DiscreteGaussian(sigma=2), observed=...)."
        )
    parameters = cell_parameters(model, cells)
    if given is not None:
        _check_given(given, [*cells, *parameters])
        parameters = [rv for rv in parameters if rv in given]
    return cells, parameters


def _check_given(given: list[Any], known: list[Any]) -> None:
    for rv in given:
        if rv not in known:
            raise ValueError(
                f"{rv.name!r} is neither a table of counts of which linear maps were released with "
                "noise nor a continuous parameter of one. Leave it to another step."
            )
