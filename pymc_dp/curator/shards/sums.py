"""A model whose records are in shards: what steps ask of one, answered by sums over them."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_dp.curator.common_rows import as_rows, row_marks
from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.penalty_kernels import BatchMoments
from pymc_dp.curator.ratios import RecordRatios
from pymc_dp.curator.shards.shard import PublicRows, refuse_fixed_lengths
from pymc_dp.types import Matrix, Vector

__all__ = ["ShardedModel", "Shards"]

_FAR = 8.0  # standard deviations of a batch's part that are computed in any case
_SAMPLE = 200  # public rows that are looked for among the records


class Shards(Protocol):
    """Where shards are, and how they are asked.

    Attributes
    ----------
    lengths : list of int
        How many records each has.
    """

    lengths: list[int]

    def ask(
        self, question: str, *common: Any, own: Sequence[tuple[Any, ...]] | None = None
    ) -> list[int]:
        """Add up the answers of all shards, each with arguments of its own after the common."""


def split_batch(batch: NDArray[np.int64], lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Find, for each shard, which places of a batch hold records of it.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.shards.sums import split_batch
    >>> split_batch(np.array([4, 0, 3]), [2, 0, 3])
    [array([1]), array([], dtype=int64), array([2, 0])]
    """
    order = np.argsort(batch, kind="stable")
    ends = np.searchsorted(batch[order], np.cumsum([0, *lengths]))
    return [order[first:last] for first, last in pairwise(ends)]


class ShardedLikelihood(RecordLikelihood):
    """What is public of a likelihood, and the number of records in all shards together."""

    def __init__(self, example: RecordLikelihood, shards: Shards) -> None:
        self.__dict__.update(example.__dict__)
        self.n_records, self.data = sum(shards.lengths), []
        self._shards = shards

    def load(self) -> None:
        """Do nothing: shards' data stays as it was loaded."""

    def __call__(self, theta: Vector) -> NoReturn:
        """Refuse: numbers of single records do not leave a shard."""
        raise TypeError("Records are in shards, which tell sums over records and nothing else.")

    def batch(self, theta: Vector, index: NDArray[np.int64]) -> NoReturn:
        """Refuse: numbers of single records do not leave a shard."""
        self(theta)

    def shares(self, arrays: Sequence[NDArray[Any]], axes: Sequence[int]) -> bool:
        """Whether records are among the rows of some public arrays, whose axes are given."""
        publics, places = [], []
        for i, (array, axis) in enumerate(zip(arrays, axes, strict=True)):
            rows = as_rows(array, axis)
            marks = row_marks(array, axis, i)
            sample = marks[:: max(1, len(marks) // _SAMPLE)]
            publics.append(PublicRows(rows.shape[1], marks, sample, i))
            same_number = len(marks) == self.n_records
            ends = np.cumsum([0, *self._shards.lengths])
            places.append(
                [marks[a:b] for a, b in pairwise(ends)]
                if same_number
                else [marks[:0] for _ in self._shards.lengths]
            )
        own = [(list(slices),) for slices in zip(*places, strict=True)]
        counts = np.array(self._shards.ask("shares", publics, own=own)).reshape(-1, len(publics), 5)
        return any(
            self._in_common(counts[a, b].tolist(), public)
            for a in range(len(counts))
            for b, public in enumerate(publics)
        )

    def _in_common(self, counts: list[int], public: PublicRows) -> bool:
        """Decide as :func:`~pymc_dp.curator.common_rows.shared_records` does of whole arrays."""
        equal, found, own_found, own_sample, different = counts
        if equal == sum(length > 0 for length in self._shards.lengths):
            return len(np.unique(public.marks)) > 1
        few_values = (
            different < 0.9 * self.n_records
            or len(np.unique(public.marks)) < 0.9 * public.marks.size
        )
        if few_values or not own_sample:
            return False
        return found > 0.5 * public.sample.size or own_found > 0.5 * own_sample

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "Chains on sharded records run in this process, and their shards elsewhere: write "
            "cores=1."
        )


class ShardedRatios(RecordRatios):
    """Sums of log-likelihood ratios over all shards."""

    def __init__(self, likelihood: RecordLikelihood, shards: Shards) -> None:
        self.likelihood, self._shards = likelihood, shards

    def forget(self) -> None:
        """Keep nothing: shards find out by themselves where a chain is."""

    def total(self, theta: Vector, proposal: Vector, bound: float) -> int:
        """Sum over all records."""
        return self._shards.ask("ratio", theta, proposal, bound)[0]

    def count(self, theta: Vector, proposal: Vector, bound: float) -> int:
        """Count the records whose ratio reaches the bound."""
        return self._shards.ask("count", theta, proposal, bound)[0]

    def batch_moments(
        self, theta: Vector, proposal: Vector, bound: float, batch: NDArray[np.int64]
    ) -> BatchMoments:
        """Count some records, and add up their ratios and the squares of these."""
        own = [(records,) for records, _ in self._parts(batch)]
        return BatchMoments(*self._shards.ask("moments", theta, proposal, bound, own=own))

    def batch_two_point(
        self,
        theta: Vector,
        proposal: Vector,
        bound: float,
        batch: NDArray[np.int64],
        words: NDArray[np.uint64],
    ) -> int:
        """Sum over some records of ratios that are rounded at random to one of their bounds."""
        own = [(records, words[places]) for records, places in self._parts(batch)]
        return self._shards.ask("two_point", theta, proposal, bound, own=own)[0]

    def _parts(self, batch: NDArray[np.int64]) -> Iterator[tuple[Any, Any]]:
        return batch_parts(batch, self._shards.lengths)


def batch_parts(
    batch: NDArray[np.int64], lengths: Sequence[int]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Tell records of a batch by their numbers in each shard, and their places in the batch."""
    starts = np.cumsum([0, *lengths])
    for start, places in zip(starts, split_batch(batch, lengths), strict=False):
        yield batch[places] - start, places


class ShardedGradients(RecordGradients):
    """Sums of clipped gradients over all shards."""

    def __init__(self, example: RecordLikelihood, shards: Shards) -> None:
        super().__init__(example)  # what has no gradient is refused before shards are asked
        self._shards = shards
        shards.ask("compile")

    def prepare(self, basis: Matrix, batches: bool = False) -> None:
        """Choose coordinates, which are sent along with each question."""
        self._basis, self.size = np.ascontiguousarray(basis), basis.shape[1]

    def total(self, theta: Vector, bound: float) -> NDArray[np.int64]:
        """Sum of the clipped gradients at `theta`, in units of ``bound / GRADIENT_LEVELS``."""
        return np.array(self._shards.ask("gradient", theta, self._basis, bound), dtype=np.int64)

    def batch_total(
        self, theta: Vector, bound: float, batch: NDArray[np.int64], least: int
    ) -> NDArray[np.int64]:
        """Sum of the clipped gradients of some records, in the units of :meth:`total`."""
        lengths = self._shards.lengths
        total = max(1, sum(lengths))
        own = []
        for (records, _), length in zip(batch_parts(batch, lengths), lengths, strict=True):
            expected = least * length / total
            own.append((records, math.ceil(expected + _FAR * math.sqrt(expected))))
        answer = self._shards.ask("batch_gradient", theta, self._basis, bound, own=own)
        return np.array(answer, dtype=np.int64)

    def jacobians(self, theta: Vector) -> NoReturn:
        """Refuse: gradients of single records do not leave a shard."""
        raise TypeError("Records are in shards, which tell sums over records and nothing else.")


class ShardedModel(RecordModel):
    """What samplers and plans ask of a model, whose records are elsewhere.

    Parameters
    ----------
    example : RecordModel
        Of the model that is built of made-up rows.
    shards : Shards
        The records.
    """

    sharded = True

    def __init__(self, example: RecordModel, shards: Shards) -> None:
        refuse_fixed_lengths(example)
        self.__dict__.update(example.__dict__)
        self._example, self.shards = example.likelihood, shards
        self.likelihood = ShardedLikelihood(self._example, shards)

    @cached_property
    def gradients(self) -> RecordGradients:
        """Clipped sums of the records' gradients."""
        return ShardedGradients(self._example, self.shards)

    @cached_property
    def ratios(self) -> RecordRatios:
        """Clipped sums of the records' log-likelihood ratios."""
        return ShardedRatios(self.likelihood, self.shards)
