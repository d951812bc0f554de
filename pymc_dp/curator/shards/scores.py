"""Scores of records in shards, held where these are."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pymc as pm

from pymc_dp.analyst.score.bounding import Bound
from pymc_dp.analyst.score.looks import Statistic
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores
from pymc_dp.curator.shards.sums import ShardedModel
from pymc_dp.types import Matrix, Neighbours, Vector

__all__ = ["confidential_scores"]


def confidential_scores(
    model: pm.Model,
    records: RecordModel,
    public_data: Collection[str] = (),
    neighbours: Neighbours = "substitute",
) -> ConfidentialScores:
    """Scores of a model's own records, or of those in its shards."""
    kind = ShardedScores if isinstance(records, ShardedModel) else ConfidentialScores
    return kind(model, records, public_data, neighbours)


class ShardedScores(ConfidentialScores):
    """Sums of held scores over all shards.

    Parameters
    ----------
    model, records, public_data, neighbours
        As of :class:`~pymc_dp.curator.score.totals.ConfidentialScores`; the model is built of
        made-up rows, on which it is seen how scores are held.
    """

    records: ShardedModel

    def bound(self, wanted: Bound | None, like: ConfidentialScores | None = None) -> Bound:
        """How scores are held, here and in all shards."""
        found = super().bound(wanted, like)
        self.records.shards.ask("compile_score", found, {}, self._neighbours)
        return found

    def total(self, bound: Bound, place: Vector, basis: Matrix, clip: float) -> list[int]:
        """Sum of the held scores at a place, in units of ``clip / CLIPPED / GRADIENT_LEVELS``."""
        return self.records.shards.ask("score", bound, place, basis, clip)

    def statistic(self, name: str, statistic: Statistic, clip: float) -> Callable[[], list[int]]:
        """Compile the sum of a user's function of the records, held by length."""
        super().statistic(name, statistic, clip)  # what is refused is refused here first
        self.records.shards.ask(
            "compile_score", "length", {name: (statistic, clip)}, self._neighbours
        )
        return partial(self.records.shards.ask, "statistic", name, clip)

    def parts(self, *args: Any) -> Matrix:
        """Refuse: scores of single records do not leave a shard."""
        raise TypeError("Records are in shards, which tell sums over records and nothing else.")
