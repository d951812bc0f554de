r"""Records with finitely many states by their table of counts: exact, at any number of records.

Where every record is in one of finitely many states (categories, several of them, small counts) and
releases are sums over records, all that matters is how many records are in each state. Given the
parameters these counts are multinomial,

.. math:: c \sim \operatorname{Multinomial}(n, q(\theta)),

q the probability of each state in the model, and a release of a sum is a release of the linear map
A c, A what a record in each state adds. With public covariates there is one such table for every
distinct row of them. Many states that no release tells apart are one cell: its probability is their
sum.
:class:`~pymc_dp.CountGibbs` samples the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import sparse as pts
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_dp.analyst.count_gibbs.tables import RecordCountsRV
from pymc_dp.analyst.invariants import sampled_with_records
from pymc_dp.analyst.marginal.counts.states import JointStates, number_of_states, same_rows
from pymc_dp.analyst.marginal.normal.moments import Contributions
from pymc_dp.analyst.marginal.strategy import Integrated, Replacement
from pymc_dp.analyst.marginal.values import finite_values, prior_draws, starting_values
from pymc_dp.analyst.precision import check_double
from pymc_dp.analyst.records import RecordBlock, batch_ndim, length_of
from pymc_dp.analyst.release import PrivatizedRV
from pymc_dp.graph.additivity import NotAdditiveError, direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms import Exact
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.types import Variable

__all__ = ["MANY_RECORDS", "MOST_STATES", "Counts", "is_cheaper", "told_of"]

#: cells of all tables of a block, at the most
MOST_STATES = 200_000
#: pmdp.sample counts records by itself from so many on, where there are as many for each cell
MANY_RECORDS, RECORDS_PER_CELL = 1000, 10
#: states that no release tells apart are one cell where this makes the table so many times smaller:
#: given all states apart, parameters that are shares of them can be drawn
SAVED_BY_MERGING = 4
#: draws of the prior by which states are found that are impossible
TRIALS = 5
#: entries up to which a linear map is a dense matrix
_MOST_DENSE = 1_000_000


class Counts:
    """Strategy: records become the counts of their states."""

    name = "counts"

    def refusal(self, model: pm.Model, block: RecordBlock) -> str | None:
        """Say what keeps the records from being counted."""
        if not block.releases:
            return f"it takes sums over {block.names}, and none was released."
        if block.factors:
            names = ", ".join(map(repr, block.factors))
            return f"{names} tells about every record by itself, not about sums."
        for release, total in zip(block.releases, block.totals, strict=True):
            adds = isinstance(release.mechanism, AdditiveNoise | Exact)
            if total is not release.statistic or not adds:
                return f"{release.mechanism!r} of {release.name!r} does not add noise to sums."
        endless = [
            rv
            for rv in block.records
            if batch_ndim(rv) < rv.type.ndim or None in rv.type.shape[1:] or not finite_values(rv)
        ]
        if endless:
            return (
                f"{endless[0].name!r} has no list of values that is known: it takes pm.Categorical "
                "(p with a fixed last axis), pm.Bernoulli, and pm.Binomial, pm.BetaBinomial and "
                "pm.DiscreteUniform with public bounds."
            )
        try:
            _Table.of(model, block)
        except (ValueError, NotAdditiveError) as err:
            return f"{err}."
        return None

    def preferred(self, model: pm.Model, block: RecordBlock) -> bool:
        """Prefer it: nothing is approximated."""
        return True

    def integrate(self, model: pm.Model, block: RecordBlock) -> Replacement:
        """Give the releases the table in place of the records."""
        check_double(model.free_RVs)
        table, told = _Table.of(model, block), told_of(model, block)
        counts = table.variable(told)
        name = f"{'_'.join(told.records)}_counts"
        while name in model.named_vars:
            name += "_"
        new = {
            release.rv: PrivatizedRV.rv_op(statistic, release.mechanism)
            for release, statistic in zip(block.releases, table.statistics(counts), strict=True)
        }
        return Replacement(block.records, new, {name: counts})


def told_of(model: pm.Model, block: RecordBlock) -> Integrated:
    """Say what stands in place of records that are counted."""
    names = tuple(str(rv.name) for rv in block.records)
    how = _Table.of(model, block).description
    return Integrated(Counts.name, names, length_of(block.records[0]), how)


def is_cheaper(model: pm.Model, block: RecordBlock) -> bool:
    """Whether a sweep over the cells of a block is far shorter than one over its records.

    Exact totals that :class:`~pymc_dp.RecordGibbs` cannot honour are counted at any cost.
    """
    n = length_of(block.records[0])
    alone = not sampled_with_records(model, block)
    if (n < MANY_RECORDS and not alone) or Counts().refusal(model, block) is not None:
        return False
    return alone or RECORDS_PER_CELL * _Table.of(model, block).cells <= n


@dataclass(frozen=True)
class _Table:
    """Cells of a block of records.

    Attributes
    ----------
    states : JointStates
        What a record may be.
    group : array of int, shape (states,)
        The cell of every state.
    sizes : array of int
        How many records there are of each kind.
    maps : list of csr_array
        What a record in each cell adds to each release, one row a kind and cell.
    constants : list of ndarray
        What is added to the sums.
    """

    states: JointStates
    group: NDArray[np.int64]
    sizes: NDArray[np.int64]
    maps: list[Any]
    constants: list[NDArray[np.float64]]

    @classmethod
    def of(cls, model: pm.Model, block: RecordBlock) -> _Table:
        """Lay the table out, or say what keeps it from being one."""
        records = _used(block)
        _check_number(block, records, 1)
        contributions = Contributions(model, block)
        if contributions.size is not None:
            raise ValueError(f"the number of records, {contributions.size.name!r}, is not known")
        kinds = len(contributions.index)
        _check_number(block, records, kinds)
        states = JointStates.of(records, contributions.parameters, contributions.index)
        number = states.size
        shapes = [_shape(total) for total in block.totals]
        maps = []
        for release, graph, shape in zip(block.releases, block.contributions, shapes, strict=True):
            try:
                maps.append(states.contributions(graph, int(np.prod(shape))))
            except ValueError as err:
                raise ValueError(f"{err}, in {release.name!r}") from None
        constants = _constants(model, contributions, shapes)
        group = same_rows(sparse.csr_array(sparse.hstack(maps, format="csr")), kinds)
        states, chosen = states.without_unused(group)
        possible = _possible(block, states)
        chosen, states = chosen[possible], states.kept(possible)
        _, first, group = np.unique(group[chosen], return_index=True, return_inverse=True)
        if SAVED_BY_MERGING * len(first) > len(chosen):
            first = group = np.arange(len(chosen))
        rows = (np.arange(kinds)[:, None] * number + chosen[first]).ravel()
        sizes = np.asarray(contributions.counts.data).astype(np.int64)
        return cls(states, group.ravel(), sizes, [found[rows] for found in maps], constants)

    @property
    def width(self) -> int:
        """Cells of one kind of record."""
        return int(self.group.max()) + 1

    @property
    def cells(self) -> int:
        """Cells of all kinds of records."""
        return self.width * len(self.sizes)

    @property
    def description(self) -> str:
        """For people."""
        counts = f"the counts of {self.width} states"
        if self.width < self.states.size:
            counts += f" (of {self.states.size}, as far as releases tell them apart)"
        kinds = len(self.sizes)
        return counts if kinds == 1 else f"{counts} for each of {kinds} rows of covariates"

    def variable(self, told: Integrated) -> TensorVariable:
        """Make the multinomial variable of the counts, of shape ([kinds,] cells)."""
        q = pt.exp(self.states.log_probabilities())
        if self.width < self.states.size:
            q = pt.zeros((len(self.sizes), self.width))[:, self.group].inc(q)
        n = self.sizes.astype(np.int64)
        if len(n) == 1:
            q, n = q[0], n[0]
        rng = pytensor.shared(np.random.default_rng())
        return RecordCountsRV(told).make_node(rng, None, pt.constant(n), q).outputs[1]

    def statistics(self, counts: TensorVariable) -> list[TensorVariable]:
        """Write what was released before noise as linear maps of the counts."""
        flat = counts.astype("float64").ravel()
        found = []
        for matrix, constant in zip(self.maps, self.constants, strict=True):
            by_cell = sparse.csr_array(matrix.T)
            if np.prod(by_cell.shape) <= _MOST_DENSE:
                total: Any = pt.constant(by_cell.toarray()) @ flat
            else:
                whole = pts.as_sparse_variable(sparse.csr_matrix(by_cell))
                total = pts.structured_dot(whole, flat[:, None])[:, 0]
            if np.any(constant != 0):
                total = total + pt.constant(constant.ravel())
            found.append(total.reshape(constant.shape) if constant.ndim else total[0])
        return found


def _used(block: RecordBlock) -> list[Any]:
    """Record variables that releases, or others that they use, depend on.

    The rest sums to one and is left out.
    """
    used = set(direct_inputs(block.contributions, block.records))
    for rv in reversed(block.records):
        if rv in used:
            used |= set(direct_inputs(rv.owner.inputs, block.records))
    return [rv for rv in block.records if rv in used]


def _check_number(block: RecordBlock, records: list[Any], kinds: int) -> None:
    number = number_of_states(records)
    if number * kinds <= MOST_STATES:
        return
    what = f"a record of {block.names} has {number:.6g} states"
    if kinds > 1:
        what += f" and there are {kinds} different rows of covariates or parameters of records"
    raise ValueError(
        f"{what}: tables of {number * kinds:.6g} cells, where {MOST_STATES} are taken at the most. "
        "Leave out variables that no release uses, use fewer categories or coarser covariates, or "
        "sample the records"
    )


def _possible(block: RecordBlock, states: JointStates) -> NDArray[np.int64]:
    """States that may have some probability: others have none whatever the parameters are."""
    q = pt.exp(states.log_probabilities())
    given = direct_inputs([q], states.parameters)
    evaluate = pytensor.function(given, q, mode=ONCE, on_unused_input="ignore")
    trials = [starting_values(given), *prior_draws(given, TRIALS)]
    seen = np.array([evaluate(*draw) > 0 for draw in trials]).any(axis=0)
    ever = seen.any(axis=0)
    if not np.array_equal(seen, np.broadcast_to(ever, seen.shape)):
        raise ValueError(
            f"states of {block.names} are impossible for some records and possible for others, "
            "whose covariates or bounds differ"
        )
    return np.flatnonzero(ever)


def _constants(
    model: pm.Model, contributions: Contributions, shapes: list[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    """Evaluate what is added to the sums."""
    graphs = contributions.constants()
    used = direct_inputs(graphs, model.basic_RVs)
    if used:
        raise ValueError(f"the statistic adds {used[0].name!r} to a sum over records")
    flat = pytensor.function([], graphs, mode=ONCE)()
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    parts = np.split(np.array(flat, dtype=np.float64), ends)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def _shape(total: Variable) -> tuple[int, ...]:
    return tuple(int(side) for side in total.type.shape)
