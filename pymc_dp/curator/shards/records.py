"""``pymc_dp.shard``: a model for the driver, and records that stay where they are."""

import copy
import os
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.compat import no_model_context
from pymc_dp.curator.curated import curated_models
from pymc_dp.curator.model import RecordModel, sharded_models
from pymc_dp.curator.shards.dask_hosts import DaskHosts, delayed_partitions
from pymc_dp.curator.shards.fingerprint import fingerprint
from pymc_dp.curator.shards.local import LocalHosts
from pymc_dp.curator.shards.partition import (
    Partition,
    as_partition,
    made_up,
    number_of_records,
    taken,
)
from pymc_dp.curator.shards.shard import OTHER_ROWS, Recipe, Report
from pymc_dp.curator.shards.sums import ShardedModel
from pymc_dp.graph.state import model_state

__all__ = ["ShardedRecords", "shard"]

_NUMBERS = (67, 71, 73, 79)  # of made-up rows: lengths that a model hardly has otherwise


class ShardedRecords(NamedTuple):
    """Records in shards, and the model that stands for them.

    Attributes
    ----------
    model : pymc.Model
        Built of made-up rows. Steps that are made for it see the shards' records.
    n_records : int
        In all shards together.
    n_shards : int
        How many there are, empty ones included.
    """

    model: pm.Model
    n_records: int
    n_shards: int


def shard(
    build: Callable[..., pm.Model],
    partitions: Any,
    *,
    client: Any = None,
    example: Any = None,
    timeout: float = 600.0,
    independent_records: bool = False,
    public_data: Sequence[str] = (),
) -> ShardedRecords:
    """Leave confidential records where they are, and sample with sums over them.

    Every partition becomes a shard: a model is built of it and compiled where it lives, and proven
    there to keep records apart. From then on a step sends the place where it is and gets
    clipped sums in whole numbers. These are added up, and noise is added once, as for records in
    one place. Whole numbers are the same however they are added: so are the draws, bit for bit.

    Parameters
    ----------
    build : callable
        Takes the arrays of a partition, row i of each belonging to record i, and returns the model
        with them observed. What it does to a record must not depend on other records.
    partitions : sequence, or Dask collections
        Without `client`: arrays, tables (pandas), tuples of them, or functions without arguments
        that load such, one for each partition. With it also delayed objects, a Dask dataframe, a
        Dask array or a tuple of Dask arrays, chunked alike by rows.
    client : distributed.Client, optional
        Of the cluster on whose workers shards are to be (``pip install pymc_dp[dask]``).
    example : array, table or tuple, optional
        Some dozens of made-up rows, like a partition, of which the driver's model is built. By
        default noughts and ones in arrays of the partitions' types. Never records.
    timeout : float
        Seconds that an answer of all shards may take, loading again what a dead worker held
        included.
    independent_records, public_data : bool, list of str
        As of :class:`~pymc_dp.DPPenalty`, for all steps on these records.

    Returns
    -------
    ShardedRecords
        With ``model``, in whose context curators' steps are made as usual.

    Raises
    ------
    ValueError
        Where a shard's model is not allowed, or not the same as the others'.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> def build(y):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 10)
    ...         _ = pm.Normal("y", mu, 1, observed=y)
    ...     return model
    >>> y = np.random.default_rng(1).normal(0.5, 1, size=1000)
    >>> records = pmdp.shard(build, [y[:300], y[300:]])
    >>> with records.model:
    ...     step = pmdp.DPPenalty(epsilon=2, delta=1e-6, chains=2, clip_logp=3, step_size=0.05)
    ...     idata = pmdp.sample(100, chains=2, step=step, progressbar=False)
    >>> records.n_records, list(idata.posterior.data_vars)
    (1000, ['mu'])
    """
    if not 0 < timeout < float("inf"):
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}.")
    if isinstance(public_data, str):
        raise TypeError(f"public_data= is a list of names: write [{public_data!r}].")
    hosts = _hosts(partitions, client, timeout)
    model, rows = _driver_model(build, hosts, example)
    recipe = Recipe(build, rows, _lengths(model, rows), independent_records, tuple(public_data))
    shards = _Shards(hosts)
    own = RecordModel(model, independent_records=independent_records, public_data=public_data)
    _refuse_other_rows(recipe, own)
    shards.lengths = _checked(hosts.install(recipe), fingerprint(own))
    records = ShardedModel(own, shards)
    if example is not None and records.likelihood.shares(own.likelihood.data, own.likelihood.axes):
        raise ValueError(
            "example= has records of the shards, which are confidential: make rows up."
        )
    sharded_models[model] = _Source(records, recipe, model_state(model))
    curated_models.setdefault(model, {})
    weakref.finalize(shards, hosts.release)
    return ShardedRecords(model, sum(shards.lengths), hosts.number)


def _hosts(partitions: Any, client: Any, timeout: float) -> LocalHosts | DaskHosts:
    if client is not None:
        delayed = delayed_partitions(partitions)
        if not delayed:
            raise ValueError("There are no partitions.")
        return DaskHosts(client, delayed, timeout)
    parts = list(partitions) if isinstance(partitions, list | tuple) else [partitions]
    single = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
    if any(hasattr(part, "dask") for part in single):
        raise ValueError("Partitions of Dask need the client of a cluster: write client=.")
    if not parts:
        raise ValueError("There are no partitions.")
    return LocalHosts(parts)


def _driver_model(
    build: Callable[..., pm.Model], hosts: LocalHosts | DaskHosts, example: Any
) -> tuple[pm.Model, Partition]:
    """Build a model of rows that are nobody's, as many as the model has no other length of."""
    given = None if example is None else as_partition(example)
    layout = None if given is not None else hosts.layout()
    for number in _NUMBERS:
        rows = made_up(layout, number) if layout is not None else given
        assert rows is not None
        with no_model_context():
            model = build(*rows)  # of nobody's rows: errors are told as they are
        if not isinstance(model, pm.Model):
            raise TypeError(f"build must return a pymc.Model, not {type(model).__name__}.")
        if number_of_records(rows) not in _lengths(model, rows):
            return model, rows
    raise ValueError(
        "The model has as many values of a variable, or columns, as there are records: integrate "
        "out what every record has of its own; or write example= with another number of rows."
    )


def _refuse_other_rows(recipe: Recipe, own: RecordModel) -> None:
    """Refuse a build that does not put row i of what it is given into record i, and nothing else.

    It is given made-up rows in another order and in another number.
    """
    number = number_of_records(recipe.example)
    more = next(m for m in range(5, 100) if number + m not in recipe.avoid)
    order = np.concatenate([np.arange(number)[::-1], np.arange(more)])
    with no_model_context():
        model = recipe.build(*(taken(part, order) for part in recipe.example))
    try:
        other = RecordModel(
            model,
            independent_records=recipe.independent_records,
            public_data=recipe.public_data,
        )
    except ValueError:
        raise ValueError(OTHER_ROWS) from None
    found, known = other.likelihood, own.likelihood
    same = [data.shape for data in found.data] == [
        (*data.shape[:axis], order.size, *data.shape[axis + 1 :])
        for data, axis in zip(known.data, known.axes, strict=True)
    ]
    if not same or not all(
        np.array_equal(data, before.take(order, axis=axis), equal_nan=True)
        for data, before, axis in zip(found.data, known.data, known.axes, strict=True)
    ):
        raise ValueError(OTHER_ROWS)
    if fingerprint(other, strict=True) != fingerprint(own, strict=True):
        raise ValueError(
            "A number in the model is that of the records it is built of, such as n=len(y): it "
            "is another one in every shard. Write a number that is public and the same for all."
        )


def _lengths(model: pm.Model, rows: Partition) -> frozenset[int]:
    """Lengths in a model that are not the number of records."""
    shapes = [*model.eval_rv_shapes().values(), *(np.shape(part)[1:] for part in rows)]
    return frozenset(int(length) for shape in shapes for length in shape)


def _checked(reports: Sequence[Report], expected: str) -> list[int]:
    """Refuse shards that may not be used, or are of another model, by their number."""
    for number, report in enumerate(reports):
        if report.refusal:
            raise ValueError(f"Shard {number} is refused: {report.refusal}")
    for number, report in enumerate(reports):
        if report.fingerprint != expected:
            raise ValueError(
                f"build makes another model of shard {number} than of made-up rows: other priors, "
                "parameters, starting values, constants or types of arrays. Write build so that "
                "nothing but the observed arrays depends on the partition (numbers of groups, "
                "means and the like are public and the same for all), or write example= with rows "
                "like the records."
            )
    first: dict[str, int] = {}
    for number, report in enumerate(reports):
        same = first.setdefault(report.digest, number)
        if report.n_records and same != number:
            raise ValueError(
                f"Partitions {same} and {number} hold the same records, and each would count "
                "twice: pass every record once."
            )
    lengths = [report.n_records for report in reports]
    if not 2 <= sum(lengths) <= 2**30:
        raise ValueError(f"The number of records must be between 2 and 2**30, not {sum(lengths)}.")
    return lengths


class _Shards:
    """All shards together, asked from the process that made them."""

    def __init__(self, hosts: LocalHosts | DaskHosts) -> None:
        self._hosts, self._process = hosts, os.getpid()
        self.lengths: list[int] = []

    def ask(
        self, question: str, *common: Any, own: Sequence[tuple[Any, ...]] | None = None
    ) -> list[int]:
        """Add up the answers of all shards that have records."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "Chains on sharded records run in the process that made the shards: write cores=1."
            )
        given = [()] * len(self.lengths) if own is None else own
        some = {i: args for i, args in enumerate(given) if self.lengths[i]}
        return self._hosts.ask(question, common, some)


class _Source:
    """Makes what a step asks of its records, the same shards for all steps of a model."""

    def __init__(self, records: ShardedModel, recipe: Recipe, state: Hashable) -> None:
        self._records, self._recipe, self._state = records, recipe, state

    def __call__(
        self,
        model: pm.Model,
        compile_kwargs: dict[str, Any] | None,
        independent_records: bool,
        public_data: Sequence[str],
    ) -> RecordModel:
        if model_state(model) != self._state:
            raise ValueError(
                "The model was changed after pymc_dp.shard made it (pm.set_data, or another "
                "variable), which its shards do not know of: change build, and call shard again."
            )
        if compile_kwargs:
            raise ValueError("compile_kwargs= does not reach the shards: leave it out.")
        more = set(public_data) - set(self._recipe.public_data)
        if more or (independent_records and not self._recipe.independent_records):
            raise ValueError(
                "Shards are checked when they are made: write independent_records= and "
                "public_data= in pymc_dp.shard."
            )
        # coordinates are each step's own
        records = copy.copy(self._records)
        records.__dict__.pop("gradients", None)
        return records
