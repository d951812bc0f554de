"""A model with records: its vector, its public part, and the likelihood of each record."""

import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.likelihood import RecordLikelihood, records_of
from pymc_dp.curator.ratios import RecordRatios
from pymc_dp.graph.direct_call import DirectCall
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.vector import FlatSpace
from pymc_dp.types import Matrix, Variable, Vector

sharded_models: weakref.WeakKeyDictionary[pm.Model, Any] = weakref.WeakKeyDictionary()
"""Models that were built of made-up rows, and what makes a :class:`RecordModel` of the shards that
hold the records (:func:`pymc_dp.shard`)."""


class RecordModel:
    """What samplers and plans ask of a model whose records they must not, or may, see.

    Parameters
    ----------
    model : pymc.Model
        Observed variables share their first axis, the records.
    compile_kwargs : dict, optional
        Passed to :func:`pytensor.function`.
    like : RecordModel, optional
        One that may be the same but for its records: what it has compiled serves here then.
    independent_records, public_data, confidential
        As of :class:`~pymc_dp.curator.likelihood.RecordLikelihood`.

    Attributes
    ----------
    space : FlatSpace
        Unconstrained values of all variables as one vector.
    likelihood : RecordLikelihood
        Log-likelihood of every record.

    Notes
    -----
    Other functions are compiled when they are first asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_dp.curator.model import RecordModel
    >>> with pm.Model() as model:
    ...     mean = pm.Normal("mean", 0, 1)
    ...     _ = pm.Normal("y", mean, 1, observed=[0.3, -0.2, 1.1])
    >>> records = RecordModel(model)
    >>> theta = np.array([2.0])
    >>> round(float(records.log_prior(theta) + records.likelihood(theta).sum()), 3)
    -9.946
    >>> records.prior_gradient(theta)
    array([-2.])
    """

    #: whether the records are elsewhere
    sharded = False

    def __init__(
        self,
        model: pm.Model,
        compile_kwargs: dict[str, Any] | None = None,
        *,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        confidential: bool = True,
        like: "RecordModel | None" = None,
    ) -> None:
        self.space = FlatSpace(model)
        self.likelihood: RecordLikelihood = RecordLikelihood(
            model,
            self.space,
            compile_kwargs,
            independent_records=independent_records,
            public_data=public_data,
            confidential=confidential,
            like=None if like is None else like.likelihood,
        )
        self._compile_kwargs = compile_kwargs or {}
        self._like = like if self.likelihood.is_alike else None
        self._public_names = ", ".join(repr(v.name) for v in [*model.free_RVs, *model.potentials])
        public = model.logp(vars=[*model.free_RVs, *model.potentials], jacobian=True)
        theta, (log_prior,) = self.space.on_vector([public])
        #: the vector, and the log-density of the public part as a graph over it
        self.prior_graph: tuple[Variable, Variable] = (theta, log_prior)

    @cached_property
    def log_prior(self) -> Callable[[Vector], float]:
        """Log-density of the public part: priors with their Jacobians, and potentials."""
        theta, log_prior = self.prior_graph
        options = {**self._compile_kwargs, "mode": quick_mode(self._compile_kwargs.get("mode"))}
        return DirectCall(pm.compile([theta], log_prior, **options))

    @cached_property
    def prior_gradient(self) -> Callable[[Vector], Vector]:
        """Gradient of the public part's log-density."""
        return self._compile_gradient([], lambda gradient: gradient)

    @cached_property
    def gradients(self) -> RecordGradients:
        """Clipped sums of the records' gradients."""
        if self._like is not None:
            like, self._like = self._like, None  # whose records may be confidential
            return like.gradients.on(self.likelihood)
        return RecordGradients(self.likelihood, self._compile_kwargs)

    @cached_property
    def ratios(self) -> RecordRatios:
        """Clipped sums of the records' log-likelihood ratios."""
        return RecordRatios(self.likelihood)

    def data_columns(self, basis: Matrix) -> NDArray[np.bool_]:
        """Tell which columns of a basis move coordinates that the likelihood depends on."""
        return np.any(basis[self.likelihood.data_coordinates] != 0, axis=0)

    def posterior_gradient(self, basis: Matrix) -> DirectCall:
        """Compile the prior's gradient with the likelihood's added.

        Parameters
        ----------
        basis : ndarray
            Gradients are by the coordinates q of ``theta = constant + basis @ q``, those of the
            likelihood by its :meth:`data_columns` alone.
        """
        likelihood = pt.dvector("likelihood")
        columns = np.flatnonzero(self.data_columns(basis))

        def by_coordinates(gradient: Variable) -> Variable:
            return (basis.T @ gradient)[columns].inc(likelihood)

        return self._compile_gradient([likelihood], by_coordinates, {"mode": "NUMBA"})

    def _compile_gradient(
        self,
        others: list[Variable],
        use: Callable[[Variable], Variable],
        options: dict[str, Any] | None = None,
    ) -> DirectCall:
        """Compile what is made of the public part's gradient, and of other inputs."""
        theta, log_prior = self.prior_graph
        options = {"on_unused_input": "ignore"} | self._compile_kwargs | (options or {})
        options["mode"] = quick_mode(options.get("mode"))
        try:
            gradient = use(pt.grad(log_prior, theta, disconnected_inputs="ignore"))
            function = pm.compile([theta, *others], gradient, **options)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(
                f"The prior of {self._public_names} has no gradient ({error}): write it with "
                "differentiable operations, or use pymc_dp.DPPenalty, which needs none."
            ) from error
        return DirectCall(function, 1 + len(others))


@np.errstate(all="ignore")  # a warning would tell that some record is out of range
def record_model(
    model: pm.Model,
    compile_kwargs: dict[str, Any] | None = None,
    *,
    independent_records: bool = False,
    public_data: Sequence[str] = (),
) -> RecordModel:
    """Find the confidential records of a model: its own, or those of its shards.

    Parameters
    ----------
    model, compile_kwargs, independent_records, public_data
        As of :class:`RecordModel`.
    """
    if model in sharded_models:
        return sharded_models[model](model, compile_kwargs, independent_records, public_data)
    records = RecordModel(
        model, compile_kwargs, independent_records=independent_records, public_data=public_data
    )
    for other in sharded_models:
        if records.likelihood.shares(*records_of(other)):
            raise ValueError(
                "This model has the made-up rows of one whose records are in shards, and would be "
                "sampled without the records: use the model that pymc_dp.shard made, not a copy."
            )
    return records
