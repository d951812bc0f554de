"""The score of every record as a graph, read from a model with observed or latent records."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type import TensorType

from pymc_dp.analyst.score.bounding import (
    Bound,
    Response,
    held_by_covariates,
    held_by_length,
    response_of,
    scores,
)
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import rebuilt, without_checks
from pymc_dp.graph.vector import VectorLayout
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["RecordArray", "ScoreGraph", "constrained", "score_graph"]

_TRIALS = 6  # records that a density is tried on


class RecordArray(NamedTuple):
    """An array with one row a record that a likelihood uses, as both sides see it.

    Attributes
    ----------
    name : str or None
        Of the variable or data container.
    shape : tuple of int
        Of one record's entries.
    integer : bool
        Whether it holds whole numbers.
    """

    name: str | None
    shape: tuple[int, ...]
    integer: bool


class ScoreGraph(NamedTuple):
    """Log-likelihood of every record, over the parameters' vector and the records' arrays.

    Attributes
    ----------
    theta : Variable
        Unconstrained parameters.
    logp : Variable
        One entry a record.
    response : Response or None
        What the likelihood is made of, where scores can be held by their covariates.
    arrays : list of Variable
        Arrays with one row a record, the observed variables' first.
    slots : dict
        Latent record variables by what stands for them.
    whole : tuple of bool
        Whether observed variables are of a discrete law, whatever their values are stored as.
    """

    theta: Variable
    logp: Variable
    response: Response | None
    arrays: list[Variable]
    slots: dict[Variable, Variable]
    whole: tuple[bool, ...]

    def held(self, bound: Bound, directions: Variable, clip: Any) -> Variable:
        """Make the graph of what each record adds to a score, one record a column."""
        if bound == "covariates":
            if self.response is None:
                raise ValueError("covariates")
            return held_by_covariates(self.response, self.theta, directions, clip)
        return held_by_length(scores(self.logp, self.theta, directions), clip)

    @property
    def has_covariates(self) -> bool:
        """Whether the response's law depends on arrays of the records."""
        if self.response is None:
            return False
        return any(array in set(ancestors(self.response.parameters)) for array in self.arrays)

    def tried(self, place: Vector, n_observed: int, number: int = _TRIALS) -> Matrix:
        """Evaluate log-density and derivatives of made-up records, to tell models apart."""
        inputs = [
            pt.tensor(dtype=array.dtype, shape=(None, *array.type.shape[1:]))
            for array in self.arrays
        ]
        swap = dict(zip(self.arrays, inputs, strict=True))
        logp = rebuilt(self.logp, swap)
        outputs = [logp, scores(logp, self.theta, pt.eye(place.size))]
        function = pytensor.function(
            [self.theta, *inputs], outputs, mode=ONCE, on_unused_input="ignore"
        )
        with np.errstate(all="ignore"):
            rows = _trial_records(self.arrays, self.whole[:n_observed], number)
            logp_value, slopes = function(place, *rows)
        return np.vstack([logp_value[None], np.broadcast_to(slopes, (place.size, number))])


def score_graph(
    model: pm.Model, observed: Sequence[str], layout: VectorLayout, n_records: int
) -> ScoreGraph:
    """Read the records' log-likelihood from a model.

    Parameters
    ----------
    model : pymc.Model
        The variables named `observed` have data, or are latent.
    observed : sequence of str
        Names of the variables that the curator observes.
    layout : VectorLayout
        Unconstrained parameters, by the names of their value variables.
    n_records : int
        Length of the records' axis, the first of every array of theirs.
    """
    rvs = [model[name] for name in observed]
    slots: dict[Variable, Variable] = {}
    for rv in rvs:
        value = model.rvs_to_values[rv]
        slots[rv] = rv.type() if rv in model.free_RVs else value
    theta = pt.dvector("theta")
    parameters = constrained(model, layout, theta)
    given = [parent for rv in rvs for parent in rv.owner.inputs]
    for rv in direct_inputs(given, model.basic_RVs):
        if rv not in parameters and rv not in slots:
            slots[rv] = rv.type()
    # densities of variables that are made of no other random ones: PyMC may copy these
    covariates = {rv: slot for rv, slot in slots.items() if rv not in rvs}
    if any(rv in slots for rv in direct_inputs(given, rvs)):
        covariates |= {rv: slots[rv] for rv in direct_inputs(given, rvs)}
    alone = [_replaced(rv, parameters | covariates) for rv in rvs]
    logps = [pm.logp(a, slots[rv], warn_rvs=False) for a, rv in zip(alone, rvs, strict=True)]
    total: Any = sum(each.sum(axis=tuple(range(1, each.type.ndim))) for each in logps)
    logp = pt.cast(without_checks(total), "float64")
    response = response_of(alone[0]) if len(rvs) == 1 else None
    own = [_uncast(slots[rv]) for rv in rvs]
    if response is not None:
        response = response._replace(value=slots[rvs[0]])
    latent = {slot: rv for rv, slot in slots.items() if rv in model.free_RVs}
    others = _record_leaves([logp], n_records, set(latent), set(own))
    whole = tuple(not rv.dtype.startswith("float") for rv in rvs)
    return ScoreGraph(theta, logp, response, [*own, *others], latent, whole)


def _uncast(value: Variable) -> Variable:
    """Return the array that a value was cast from: whole numbers in a container of real ones."""
    node = value.owner
    if node is not None and isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast):
        return node.inputs[0]
    return value


def _replaced(rv: Variable, swap: Mapping[Variable, Variable]) -> Variable:
    """Copy a random variable, with others that it depends on replaced."""
    inputs = clone_replace(list(rv.owner.inputs), dict(swap), rebuild_strict=False)
    return rv.owner.op.make_node(*inputs).outputs[rv.owner.outputs.index(rv)]


def constrained(model: pm.Model, layout: VectorLayout, theta: Variable) -> dict[Variable, Variable]:
    """Parameters as functions of the vector of their unconstrained values."""
    by_value = {str(model.rvs_to_values[rv].name): rv for rv in model.free_RVs}
    wanted = {by_value[name]: name for name in layout.shapes}
    swap: dict[Variable, Variable] = {}
    order = [node.outputs[-1] for node in io_toposort([], list(wanted))]
    for rv in sorted(wanted, key=lambda rv: order.index(rv)):
        value = layout.piece(theta, wanted[rv])
        transform = model.rvs_to_transforms[rv]
        if transform is not None:
            value = transform.backward(value, *rv.owner.inputs)
            [value] = clone_replace([value], swap, rebuild_strict=False) if swap else [value]
        swap[rv] = value.astype(rv.dtype)
    return swap


def _record_leaves(
    graphs: Sequence[Variable], n_records: int, slots: set[Variable], own: set[Variable]
) -> list[Variable]:
    """Covariates: latent ones, and arrays of data with a row for each record."""
    found = []
    leaf: Variable
    for leaf in ancestors(graphs, own):
        if leaf in own:
            continue
        if leaf in slots:
            found.append(leaf)
        elif _is_array(leaf):
            value = leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)
            if value.shape[0] == n_records:
                found.append(leaf)
    return found


def _is_array(leaf: Variable) -> bool:
    is_data = isinstance(leaf, Constant | SharedVariable)
    return is_data and isinstance(leaf.type, TensorType) and leaf.type.ndim > 0


def _entry_shape(array: Variable) -> tuple[int, ...]:
    """Shape of one record's part of an array; that of a data container is known by its value."""
    shape = array.type.shape
    if None in shape[1:]:
        shape = array.shape.eval(mode=ONCE)
    return tuple(int(length) for length in shape[1:])


def _trial_records(
    arrays: Sequence[Variable], whole: Sequence[bool], number: int
) -> list[NDArray[Any]]:
    """Values that responses and covariates of most models can have.

    All covariates of a record have one value, so that it does not matter how they are arranged in
    arrays: 0 or 1 for the first half of the records, and then, where they are no whole numbers,
    between these.
    """
    rng = np.random.default_rng(20)
    values: list[NDArray[Any]] = []
    zero_one, between = np.arange(number) % 2.0, np.linspace(0.25, 0.7, number)
    for i, array in enumerate(arrays):
        size, is_float = (number, *_entry_shape(array)), array.dtype.startswith("float")
        if i < len(whole):
            value = rng.integers(0, 2, size) if whole[i] else rng.uniform(0.2, 0.8, size)
        else:
            late = is_float & (np.arange(number) >= number // 2)
            value = np.where(late, between, zero_one).reshape(number, *[1] * (len(size) - 1))
        values.append(np.broadcast_to(value, size).astype(array.dtype))
    return values


def record_arrays(graph: ScoreGraph, names: Mapping[Variable, str | None]) -> list[RecordArray]:
    """Describe the arrays of a graph, by the names of variables."""
    found = []
    for array in graph.arrays:
        integer = not array.dtype.startswith("float")
        found.append(RecordArray(names.get(array), _entry_shape(array), integer))
    return found
