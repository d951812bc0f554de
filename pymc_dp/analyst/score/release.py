"""A noised score that may be published, and how an analyst declares it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.budget import record_weight
from pymc_dp.accounting.gaussian import gaussian_epsilon
from pymc_dp.analyst.privatized import Privatized
from pymc_dp.analyst.release import releases
from pymc_dp.analyst.score.bounding import held_by_length
from pymc_dp.analyst.score.graph import (
    RecordArray,
    ScoreGraph,
    constrained,
    record_arrays,
    score_graph,
)
from pymc_dp.analyst.score.looks import (
    Look,
    Moments,
    NoisedSum,
    Statistic,
    named_arrays,
    named_statistic,
    plain,
)
from pymc_dp.analyst.score.reading import read_parts
from pymc_dp.formats.document import Source, document_of, in_field, known_fields, write
from pymc_dp.formats.published import Published
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.graph.vector import VectorLayout
from pymc_dp.mechanisms import Gaussian
from pymc_dp.types import Matrix, Neighbours, Variable, Vector

__all__ = ["ScoreRelease"]

#: what a document has beside the fields of every release
_DETAILS = ("parameters", "observed", "arrays", "looks", "also", "trial")


@dataclass(frozen=True, eq=False, repr=False)
class ScoreRelease:
    """What a curator publishes: the noised sum of records' scores at one or several places.

    Made by :func:`~pymc_dp.score_release`. Nothing in it but noised sums was computed from the
    records.

    Attributes
    ----------
    parameters : dict
        Shapes of the unconstrained parameters that records inform, by name.
    observed : tuple of str
        Names of the variables that the curator observed.
    arrays : tuple of RecordArray
        What a record consists of.
    looks : tuple of Look
        Noised scores, in the order in which they were taken.
    also : tuple of Moments
        Other noised sums of the same records.
    n : float
        Number of records; noised with standard deviation ``n_sigma`` where it is confidential.
    epsilon, delta : float
        Guarantee of everything in this object together.
    neighbours : str
        Which data sets it makes hard to tell apart.
    trial : ndarray or None
        Log-density and its derivatives of made-up records, by which another model is recognised.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> y = np.random.default_rng(1).normal(0.5, 1, size=2000)  # confidential
    >>> def build(**records):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 1)
    ...         _ = pm.Normal("y", mu, 1, **records)
    ...     return model
    >>> release = pmdp.score_release(
    ...     build(observed=y), at={"mu": 0.4}, clip=2, epsilon=2, delta=1e-6
    ... )
    >>> with build(shape=2000):
    ...     _ = pmdp.ScoreRelease.from_json(release.to_json()).declare("score")
    """

    parameters: Mapping[str, tuple[int, ...]]
    observed: tuple[str, ...]
    arrays: tuple[RecordArray, ...]
    looks: tuple[Look, ...]
    also: tuple[Moments, ...]
    n: float
    n_sigma: float
    epsilon: float
    delta: float
    neighbours: Neighbours
    trial: Matrix | None

    @property
    def value(self) -> Vector:
        """All released numbers, in the order in which :meth:`declare` takes them."""
        return np.concatenate([each.value for each in self._sums(self.looks)])

    @property
    def sigma(self) -> Vector:
        """Standard deviation of the noise in each of them."""
        return np.concatenate([each.noise for each in self._sums(self.looks)])

    def _sums(self, looks: Sequence[Look]) -> list[NoisedSum]:
        count = [NoisedSum(self.n_sigma, np.array([self.n]))] if self.n_sigma else []
        return [*looks, *self.also, *count]

    def __repr__(self) -> str:
        last = self.looks[-1]
        kept = {
            "length": "clipped by their length",
            "covariates": "scaled by a factor of the covariates",
        }[last.bound]
        number = f"about {self.n:.0f}" if self.n_sigma else f"{self.n:.0f}"
        names = ", ".join(self.parameters)
        several = f" (and {len(self.looks) - 1} before)" if len(self.looks) > 1 else ""
        also = "".join(f"; also {each.name}, {each.value.size} sums" for each in self.also)
        return (
            f"ScoreRelease of {', '.join(self.observed)}, {number} records: scores by {names} at "
            f"{np.array2string(last.place, precision=4, threshold=8)}{several}, {kept} to "
            f"{last.clip:.4g}, noise sd {last.sigma:.4g}{also}; epsilon {self.epsilon:.4g}, "
            f"delta {self.delta:g} ({self.neighbours})"
        )

    def published(self) -> Published:
        """Return what releases of all kinds tell, checked: see :mod:`pymc_dp.formats`."""
        weight = record_weight(self.neighbours)
        sums: list[Look | Moments] = [*self.looks, *self.also]
        parts = [weight * each.clip / each.sigma for each in sums]
        parts += [1 / self.n_sigma] if self.n_sigma else []
        spent = gaussian_epsilon(self.delta, sum(part**2 for part in parts) / 2)
        if spent > self.epsilon * (1 + 1e-6):
            raise ValueError(
                f"guarantee: clipped to these lengths and with this noise the sums give epsilon "
                f"{spent:.6g} at delta {self.delta:g}, and the release claims {self.epsilon:.6g}: "
                "its noise is too small for that."
            )
        return Published(
            f"sums of records' clipped scores by {', '.join(self.parameters)}, of "
            f"{', '.join(self.observed)}" + "".join(f"; then of {m.name}" for m in self.also),
            Gaussian(sigma=self.sigma),
            self.value,
            neighbours=self.neighbours,
            epsilon=self.epsilon,
            delta=self.delta,
            n=self.n,
            n_mechanism=Gaussian(sigma=self.n_sigma) if self.n_sigma else None,
            bounds={"score": [each.clip for each in self.looks]}
            | {each.name: each.clip for each in self.also},
        )

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write everything as JSON, to a file if one is named."""
        details = {name: plain(getattr(self, name)) for name in _DETAILS}
        return write("ScoreRelease", self.published().plain(), path, **details)

    @classmethod
    def from_json(cls, source: Source) -> "ScoreRelease":
        """Read what :meth:`to_json` wrote: a file, the text itself, or its fields."""
        fields = document_of(source, ["ScoreRelease"])
        details = known_fields("details", fields["details"], _DETAILS)
        told = Published.from_plain(fields)
        if told.n is None or told.epsilon is None:
            raise ValueError("guarantee and n of a ScoreRelease must not be null.")
        try:
            release = cls(
                n=float(told.n),
                n_sigma=0.0 if told.n_mechanism is None else float(told.n_mechanism.noise),
                epsilon=told.epsilon,
                delta=told.delta,
                neighbours=told.neighbours or "substitute",
                **read_parts(details),
            )
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"details: these are not of a ScoreRelease: {error!r}.") from error
        with in_field("details"):
            own = release.published()
        own.check_agrees(told)
        return release

    def declare(
        self,
        name: str = "score",
        *,
        looks: Sequence[int] | None = None,
        also: Mapping[str, Statistic] | None = None,
        present: TensorVariable | None = None,
        check: bool = True,
        model: pm.Model | None = None,
    ) -> TensorVariable:
        """Declare, in the same model with its records latent, that this was released.

        Parameters
        ----------
        name : str
            Name of the released value in the model.
        looks : sequence of int, optional
            Positions of the looks to use. By default all; but where the last one is held by
            covariates, only those that are: the others depend on the law that the model has for
            covariates, which may be wrong.
        also : dict, optional
            The functions of the records that were released beside the score, by name.
        present : TensorVariable, optional
            Where the number of records is confidential (``neighbours="add_remove"``): which rows of
            the table are records, such as ``pm.Bernoulli("present", rho, shape=n_max)``.
        check : bool
            Compare the model's density of made-up records with the curator's. False is for models
            that are the same and arrange covariates in another way.
        model : pymc.Model, optional
            The model, if not the one in context.

        Returns
        -------
        TensorVariable
            As of :func:`~pymc_dp.Privatized`.

        Notes
        -----
        The clipped score is built from the model's own log-density, at the place and in the
        coordinates of the release; parameters' priors, and what else the model says, may differ
        from the curator's.
        """
        model = pm.modelcontext(model)
        graph = self._graph_in(model)
        n_rows = int(graph.arrays[0].type.shape[0] or 0)
        self._check_number(n_rows, present)
        if check:
            self._check_density(graph)
        used = self._used(looks)
        sums: list[Variable] = []
        for look in used:
            held = graph.held(look.bound, pt.as_tensor(look.basis.T), look.clip)
            sums.append(rebuilt(held, {graph.theta: pt.as_tensor(look.place)}))
        names = {slot: str(rv.name) for slot, rv in graph.slots.items()}
        sums += self._moments(graph, names, also or {})
        sums = [rebuilt(each, graph.slots) for each in sums]
        if self.n_sigma:
            sums.append(pt.ones((1, n_rows)))
        if present is not None:
            sums = [each * present[None, :] for each in sums]
        statistic = pt.concatenate(sums, axis=0).sum(axis=1)
        sigma = np.concatenate([each.noise for each in self._sums(used)])
        value = np.concatenate([each.value for each in self._sums(used)])
        _refuse_twice(model, value)
        self._start(model, used[-1])
        with model:
            return Privatized(name, statistic, Gaussian(sigma=sigma), observed=value)

    def _used(self, looks: Sequence[int] | None) -> list[Look]:
        if looks is None:
            robust = self.looks[-1].bound == "covariates"
            return [each for each in self.looks if not robust or each.bound == "covariates"]
        try:
            return [self.looks[i] for i in looks]
        except (IndexError, TypeError):
            raise ValueError(
                f"looks= must be positions from 0 to {len(self.looks) - 1}, not {looks!r}."
            ) from None

    def _graph_in(self, model: pm.Model) -> ScoreGraph:
        """Graph of the records' scores in a model, or what it lacks."""
        own = {str(v.name): rv for rv, v in model.rvs_to_values.items() if rv in model.free_RVs}
        for name, shape in self.parameters.items():
            if name not in own:
                raise ValueError(
                    f"The release is about a parameter {name!r} of shape {tuple(shape)}; this "
                    f"model has {sorted(own)}: write the curator's model, with the same names and "
                    "supports of its parameters, and its records latent."
                )
            found = tuple(np.shape(model.initial_point()[name]))
            if found != tuple(shape):
                raise ValueError(
                    f"The parameter {name!r} has shape {found} (unconstrained) in this model and "
                    f"{tuple(shape)} in the curator's."
                )
        for name in self.observed:
            if name not in model.named_vars:
                raise ValueError(f"The curator observed {name!r}, which this model does not have.")
            if model[name] in model.observed_RVs:
                raise ValueError(
                    f"{name!r} is observed: leave observed= out, and write shape=n in its place, "
                    "so that the records are latent."
                )
            if model[name] not in model.free_RVs or not model[name].type.ndim:
                raise ValueError(f"{name!r} must be a random variable with one row a record.")
        n_rows = model[self.observed[0]].type.shape[0]
        return score_graph(model, self.observed, VectorLayout(dict(self.parameters)), n_rows)

    def _start(self, model: pm.Model, look: Look) -> None:
        """Let samplers start where the score was taken, unless they are told otherwise."""
        layout, theta = VectorLayout(dict(self.parameters)), pt.dvector("theta")
        for rv, value in constrained(model, layout, theta).items():
            if model.rvs_to_initial_values.get(rv) is None:
                start = pytensor.function([theta], value, mode=ONCE, on_unused_input="ignore")
                model.set_initval(rv, start(look.place))

    def _check_number(self, n_rows: int, present: TensorVariable | None) -> None:
        if self.n_sigma and present is None:
            raise ValueError(
                "The number of records is confidential, and this release has it with noise "
                f"({self.n:.0f}, standard deviation {self.n_sigma:.3g}). Write a table of as many "
                "rows as there may be and a variable that says which are there: present="
                'pm.Bernoulli("present", rho, shape=n_max), rho with a prior.'
            )
        if not self.n_sigma and present is None and n_rows != self.n:
            raise ValueError(
                f"{self.observed[0]!r} has {n_rows} rows in this model, and the release is of "
                f"{self.n:.0f} records: write shape={self.n:.0f}."
            )

    def _check_density(self, graph: ScoreGraph) -> None:
        """Compare the model's density of made-up records with the curator's."""
        own, number = record_arrays(graph, {}), len(self.observed)
        for name, mine, theirs in zip(self.observed, own, self.arrays, strict=False):
            if mine.shape != theirs.shape:
                raise ValueError(
                    f"An entry of {name!r} has shape {mine.shape} in this model and {theirs.shape} "
                    "in the curator's."
                )
        if self.trial is None:
            return
        found = graph.tried(self.looks[0].place, number)
        close = np.isclose(found, self.trial, rtol=1e-6, atol=1e-8, equal_nan=True)
        kinds = [{each.integer for each in arrays[number:]} for arrays in (own, self.arrays)]
        if kinds[0] != kinds[1]:  # whole numbers on one side alone
            close[:, close.shape[1] // 2 :] = True
        if close.all():
            return
        row, record = np.argwhere(~close)[0]
        what = "log-density" if row == 0 else f"derivative by {self._coordinate(row - 1)}"
        raise ValueError(
            f"This model's density of {', '.join(self.observed)} is not the curator's: of a "
            f"made-up record, at the release's place, the {what} is {found[row, record]:.6g} and "
            f"the curator's {self.trial[row, record]:.6g}."
        )

    def _coordinate(self, i: int) -> str:
        layout = VectorLayout(dict(self.parameters))
        return next(repr(name) for name, where in layout.slices.items() if i < where.stop)

    def _moments(
        self, graph: ScoreGraph, names: Mapping[Variable, str], also: Mapping[str, Statistic]
    ) -> list[Variable]:
        wanted, given = [each.name for each in self.also], sorted(also)
        if sorted(wanted) != given:
            raise ValueError(
                f"The release has {wanted or 'no sums'} beside the score: write also= with the "
                f"same functions by these names, not {given}."
            )
        arrays = named_arrays(graph.arrays, names)
        return [
            held_by_length(named_statistic(each.name, also[each.name], arrays), each.clip)
            for each in self.also
        ]


def _refuse_twice(model: pm.Model, value: Vector) -> None:
    for release in releases(model):
        known = model.rvs_to_values[release.rv]
        data = (
            known.get_value() if isinstance(known, SharedVariable) else getattr(known, "data", ())
        )
        if np.isin(value, np.asarray(data, dtype=float)).any():
            raise ValueError(
                f"This release is declared already, as {release.name!r}: twice would count it as "
                "two independent ones."
            )
