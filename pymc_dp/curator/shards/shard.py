"""A shard: the records of one partition, and the sums over them that may be asked for."""

import hashlib
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_dp.compat import no_model_context
from pymc_dp.curator.common_rows import row_marks
from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores
from pymc_dp.curator.shards.fingerprint import fingerprint
from pymc_dp.curator.shards.partition import (
    Partition,
    as_partition,
    number_of_records,
    with_rows,
)
from pymc_dp.types import Matrix, Vector

__all__ = ["OTHER_ROWS", "Recipe", "Report", "Shard", "built", "safe_message"]

Index = NDArray[np.int64]
_SAMPLE = 200  # rows that are looked for among public ones
_compiled: weakref.WeakValueDictionary[str, RecordGradients] = weakref.WeakValueDictionary()
"""Gradients that a shard of this process has compiled, by the model's fingerprint."""
_PACKAGE = Path(__file__).parents[2]
OTHER_ROWS = (
    "build makes a model of other rows than it is given: it leaves some out, adds some, brings "
    "them into another order, uses arrays from elsewhere, or what it does to one depends on "
    "others. Give it partitions that are ready, and let it put row i of each into record i."
)


class Recipe(NamedTuple):
    """How every shard is made; all of it is public.

    Attributes
    ----------
    build : callable
        Builds the model from a partition.
    example : tuple
        Made-up rows of a partition.
    avoid : frozenset of int
        Lengths in the model that are not the number of records.
    independent_records, public_data
        As of :class:`~pymc_dp.DPPenalty`.
    """

    build: Callable[..., pm.Model]
    example: Partition
    avoid: frozenset[int]
    independent_records: bool
    public_data: tuple[str, ...]


class Report(NamedTuple):
    """What is told of a shard when it is made: that it may be used, or why not.

    Attributes
    ----------
    n_records : int
        How many records it has.
    fingerprint : str
        Names its model.
    digest : str
        Of its records, under a name that is random and used once: tells whether a shard that was
        lost is the same when it is made again, and nothing else.
    refusal : str
        Why it may not be used, in words without a record's value.
    """

    n_records: int = 0
    fingerprint: str = ""
    digest: str = ""
    refusal: str = ""


class Shard:
    """Sums over the records of one partition.

    Parameters
    ----------
    recipe : Recipe
        How the model is built and checked.
    given : array, table or tuple
        The partition.

    Notes
    -----
    Questions are answered by lists of whole numbers that add up over shards.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_dp.curator.shards.shard import Recipe, Shard
    >>> def build(y):
    ...     with pm.Model() as model:
    ...         _ = pm.Normal("y", pm.Normal("mu", 0, 1), 1, observed=y)
    ...     return model
    >>> example = (np.resize([0.0, 1.0, 1.0], 67),)
    >>> shard = Shard(Recipe(build, example, frozenset(), False, ()), np.array([3.0]))
    >>> [total] = shard.ask("ratio", np.zeros(1), np.ones(1), 10.0)
    >>> total / 2**32 * 10  # log N(3; 1, 1) - log N(3; 0, 1)
    2.5
    """

    def __init__(self, recipe: Recipe, given: Any) -> None:
        partition = as_partition(given)
        self.n_records = number_of_records(partition)
        rows = with_rows(partition, recipe.example, recipe.avoid)
        model = built(recipe.build, rows)
        if not isinstance(model, pm.Model):
            raise TypeError(f"build must return a pymc.Model, not {type(model).__name__}.")
        self._model, self._recipe = model, recipe
        self.records = RecordModel(
            model,
            independent_records=recipe.independent_records,
            public_data=recipe.public_data,
        )
        if self.records.likelihood.n_records != number_of_records(rows):
            raise ValueError(OTHER_ROWS)
        refuse_fixed_lengths(self.records)
        self.fingerprint = fingerprint(self.records)
        self.records.likelihood.keep(self.n_records)
        self._basis: bytes | None = None
        self._scores: dict[str, ConfidentialScores] = {}
        self._statistics: dict[bytes, Callable[[], list[int]]] = {}

    def ask(self, question: str, *args: Any) -> list[int]:
        """Answer one of the questions below by whole numbers."""
        answer = getattr(self, f"_ask_{question}")(*args)
        return [int(number) for number in answer]

    def _ask_forget(self) -> Sequence[int]:
        self.records.ratios.forget()
        return []

    def _ask_compile(self) -> Sequence[int]:
        """Compile gradients, which are asked for only by some; once for all shards of a process."""
        if self.fingerprint in _compiled:
            gradients = _compiled[self.fingerprint].on(self.records.likelihood)
            self.records.__dict__.setdefault("gradients", gradients)
        else:
            _compiled[self.fingerprint] = self.records.gradients
        return []

    def digest(self, key: str) -> str:
        """Name the records in their order, under a key."""
        digest = hashlib.blake2b(key=key.encode(), digest_size=16)
        for rows in self.records.likelihood.data:
            digest.update(rows)
        return digest.hexdigest()

    def _ask_ratio(self, theta: Vector, proposal: Vector, bound: float) -> Sequence[int]:
        return [self.records.ratios.total(theta, proposal, bound)]

    def _ask_count(self, theta: Vector, proposal: Vector, bound: float) -> Sequence[int]:
        return [self.records.ratios.count(theta, proposal, bound)]

    def _ask_moments(
        self, theta: Vector, proposal: Vector, bound: float, batch: Index
    ) -> Sequence[int]:
        if not batch.size:
            return [0, 0, 0]
        return self.records.ratios.batch_moments(theta, proposal, bound, batch)

    def _ask_two_point(
        self,
        theta: Vector,
        proposal: Vector,
        bound: float,
        batch: Index,
        words: NDArray[np.uint64],
    ) -> Sequence[int]:
        if not batch.size:
            return [0]
        return [self.records.ratios.batch_two_point(theta, proposal, bound, batch, words)]

    def _ask_gradient(self, theta: Vector, basis: Matrix, bound: float) -> Any:
        self._prepare(basis, False)
        return self.records.gradients.total(theta, bound)

    def _ask_batch_gradient(
        self, theta: Vector, basis: Matrix, bound: float, batch: Index, least: int
    ) -> Any:
        self._prepare(basis, True)
        return self.records.gradients.batch_total(theta, bound, batch, least)

    def _prepare(self, basis: Matrix, batches: bool) -> None:
        self._ask_compile()
        key = basis.tobytes() + str((basis.shape, batches)).encode()
        if key != self._basis:
            self.records.gradients.prepare(basis, batches)
            self._basis = key

    def _ask_score(self, kind: Any, *args: Any) -> Sequence[int]:
        scores = self._scores_by(kind)
        self._basis = None  # scores have coordinates of their own
        return scores.total(kind, *args)

    def _ask_compile_score(self, kind: Any, also: dict[str, Any], neighbours: Any) -> list[int]:
        """Compile held scores and other statistics, and see that they keep records apart."""
        # places in the order, and numbers of records, are other ones in every shard
        scores = ConfidentialScores(
            self._model, self.records, self._recipe.public_data, "add_remove"
        )
        scores.bound(kind)
        self._scores[kind] = scores
        for name, (statistic, clip) in also.items():
            self._statistics[f"{name} {clip}".encode()] = scores.statistic(name, statistic, clip)
        return []

    def _scores_by(self, kind: str) -> ConfidentialScores:
        return self._scores[kind]

    def _ask_statistic(self, name: str, clip: float) -> Sequence[int]:
        return self._statistics[f"{name} {clip}".encode()]()

    def _ask_shares(self, publics: Sequence["PublicRows"], slices: Sequence[Vector]) -> list[int]:
        """Count rows in common with public arrays: five numbers for each pair of arrays."""
        likelihood = self.records.likelihood
        answer: list[int] = []
        for rows, axis in zip(likelihood.data, likelihood.axes, strict=True):
            width = rows.size // self.n_records
            own = {salt: row_marks(rows, axis, salt) for salt in {each.salt for each in publics}}
            for public, same_place in zip(publics, slices, strict=True):
                if public.width != width:
                    answer += [0, 0, 0, 0, 0]
                    continue
                marks = own[public.salt]
                sample = marks[:: max(1, len(marks) // _SAMPLE)]
                answer += [
                    int(same_place.size and np.array_equal(marks, same_place, equal_nan=True)),
                    int(np.isin(public.sample, marks).sum()),
                    int(np.isin(sample, public.marks).sum()),
                    len(sample),
                    len(np.unique(marks)),
                ]
        return answer


class PublicRows(NamedTuple):
    """Public rows that are looked for among the records: a number for each."""

    width: int
    marks: Vector
    sample: Vector
    salt: int


def refuse_fixed_lengths(records: RecordModel) -> None:
    """Refuse models that are not the same for some of the records."""
    likelihood = records.likelihood
    if likelihood.by_place or not likelihood.splits:
        raise ValueError(
            f"The log-likelihood of {likelihood.names} depends on the place of a record in the "
            "order, or has the number of records written into it, which are other ones in every "
            "shard: write the model without fixed lengths (shape=, size=, arange) of the records."
        )


def safe_message(error: BaseException) -> str:
    """Tell what went wrong in the words of this package, or only its kind.

    What others say of an error may quote a record.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    ours = last is not None and Path(last.filename).is_relative_to(_PACKAGE)
    said = last is not None and (last.line or "").startswith("raise ")
    return str(error) if ours and said else type(error).__name__


def built(build: Callable[..., Any], rows: Sequence[Any]) -> Any:
    """Build a model, in no other's context; what goes wrong is told by its kind alone."""
    try:
        with no_model_context():
            return build(*rows)
    except Exception as error:
        kind = type(error).__name__
    raise ValueError(f"build fails ({kind}); what its message says may be confidential.")
