"""The matrix of a statistic that is linear in latent variables, read from its graph.

Walking from the variables up to the statistic, every value is kept as a sparse matrix, one row an
entry, beside the constant that it adds. What only selects or arranges entries is applied to their
numbers; sums, products with public arrays and matrix products act on the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
from numpy.typing import NDArray
from pymc.vartypes import discrete_types
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as ps
from pytensor.sparse.math import StructuredDot
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_dp.compat import inline_ofg_node
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.additivity.whole import keeps_values
from pymc_dp.graph.intervals import ONCE

__all__ = ["LinearMap", "NotLinearError", "linear_map"]

#: they select or arrange entries of their inputs
_SELECTS = (
    Alloc, AdvancedSubtensor, DimShuffle, ExtractDiag, Join, JoinDims, MakeVector, Reshape,
    SpecifyShape, SplitDims, Subtensor, ViewOp,
)  # fmt: skip


class NotLinearError(ValueError):
    """A statistic is not a public linear map of the variables."""


class LinearMap(NamedTuple):
    """``matrix @ variables + constant``, reshaped.

    Attributes
    ----------
    matrix : csr_array
        One row an entry of the statistic, one column an entry of the variables, side by side.
    constant : ndarray
        What the statistic is where the variables are zero, flat.
    shape : tuple of int
        Shape of the statistic.
    """

    matrix: Any
    constant: NDArray[np.float64]
    shape: tuple[int, ...]


def linear_map(
    statistic: TensorVariable, variables: Sequence[TensorVariable], fixed: Sequence[Any] = ()
) -> LinearMap:
    """Read the matrix of a statistic, or say what keeps it from being linear.

    Parameters
    ----------
    statistic : TensorVariable
        A function of the variables and of public arrays.
    variables : sequence of TensorVariable
        What it should be linear in.
    fixed : sequence of TensorVariable
        Other variables that are not public: the map must not use them.

    Raises
    ------
    NotLinearError
        Naming the operation.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.linear_map import linear_map
    >>> x = pt.matrix("x", shape=(2, 3))
    >>> linear_map(2 * x.sum(axis=0) + 1, [x]).matrix.toarray()
    array([[2., 0., 0., 2., 0., 0.],
           [0., 2., 0., 0., 2., 0.],
           [0., 0., 2., 0., 0., 2.]])
    """
    shapes = [_shape_of(var) for var in variables]
    sizes = [int(np.prod(shape)) for shape in shapes]
    starts = np.cumsum([0, *sizes])
    eye = sparse.eye_array(int(starts[-1]), format="csr")
    known = {
        var: LinearMap(eye[start : start + size], np.zeros(size), shape)
        for var, start, size, shape in zip(variables, starts, sizes, shapes, strict=False)
    }
    whole = all(var.dtype in discrete_types for var in variables)
    found = _propagate(statistic, known, set(fixed), whole)
    if found is None:
        raise NotLinearError("it does not use the variables")
    return found


def _propagate(
    output: Variable, known: dict[Any, LinearMap], fixed: set[Any], whole: bool
) -> LinearMap | None:
    """Carry maps from the variables, whole numbers or not, up to `output`."""
    for node in [] if output in known else io_toposort([*known, *fixed], [output]):
        if isinstance(node.op, Shape | Shape_i) or not any(var in known for var in node.inputs):
            continue
        if isinstance(node.op, OpFromGraph):
            graphs = inline_ofg_node(node)
            found = [_propagate(graph, dict(known), fixed, whole) for graph in graphs]
        else:
            _check_values_kept(node, known, whole)
            found = [_map_of(node, known, fixed)]
        known.update((out, f) for out, f in zip(node.outputs, found, strict=False) if f is not None)
    return known.get(output)


def _map_of(node: Any, known: dict[Any, LinearMap], fixed: set[Any]) -> LinearMap:
    op = node.op
    core = op.scalar_op if isinstance(op, Elemwise) else op
    if isinstance(op, CheckAndRaise) and node.inputs[0] in known:
        return known[node.inputs[0]]
    if isinstance(op, _SELECTS):
        return _selected(node, known, fixed)
    if isinstance(op, Sum):
        return _summed(node, known)
    if isinstance(core, ps.Cast | ps.Identity):
        return known[node.inputs[0]]
    if isinstance(core, ps.Add | ps.Sub | ps.Neg | ps.Mul | ps.TrueDiv):
        return _arithmetic(node, core, known, fixed)
    if isinstance(op, Dot | StructuredDot) or _is_matmul(op):
        return _product(node, known, fixed)
    raise NotLinearError(f"{op} is not linear")


def _check_values_kept(node: Any, known: dict[Any, LinearMap], whole: bool) -> None:
    """Insist that the output's type holds sums of the variables as they are."""
    after = node.outputs[0].type.dtype
    for var in (var for var in node.inputs if var in known):
        before = var.type.dtype
        if keeps_values(before, after):
            continue
        rounds = np.dtype(before).kind == "f" and np.dtype(after).kind in "biu"
        weights = [known[var].matrix.data, known[var].constant]
        if rounds and after == "int64" and whole and all(np.all(w == np.round(w)) for w in weights):
            continue
        how = "rounds" if rounds else "may not hold"
        raise NotLinearError(f"a cast from {before} to {after} {how} what is cast")


def _is_matmul(op: Any) -> bool:
    return isinstance(op, Blockwise) and isinstance(op.core_op, Dot)


def _selected(node: Any, known: dict[Any, LinearMap], fixed: set[Any]) -> LinearMap:
    """Apply an operation to the entries' numbers; constants are entries too."""
    inside: list[Any] = []
    parts, constants, given, stop = [], [], {}, 0
    arrays = isinstance(node.op, Join | MakeVector)
    for i, var in enumerate(node.inputs):
        whole = known.get(var)
        if whole is None and arrays and not (isinstance(node.op, Join) and i == 0):
            value = np.asarray(_public(var, fixed), dtype=float)
            width = next(m.matrix.shape[1] for m in known.values())
            whole = LinearMap(sparse.csr_array((value.size, width)), value.ravel(), value.shape)
        elif whole is not None and not arrays and i > 0:
            raise NotLinearError(f"{node.op} selects by the variables")
        if whole is None:
            inside.append(var)
            if var.owner is not None:
                _public(var, fixed, only_check=True)
            continue
        numbers = stop + np.arange(whole.constant.size).reshape(whole.shape)
        symbol = pytensor.tensor.tensor(dtype="int64", shape=whole.shape)
        inside.append(symbol)
        given[symbol] = numbers
        parts.append(whole.matrix)
        constants.append(whole.constant)
        stop += whole.constant.size
    out = node.op.make_node(*inside).outputs[0]
    chosen = pytensor.function(list(given), out, mode=ONCE, on_unused_input="ignore")(
        *given.values()
    )
    rows = np.asarray(chosen, dtype=np.int64)
    matrix = parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")
    flat = rows.ravel()
    same = flat.size == matrix.shape[0] and bool(np.all(flat == np.arange(flat.size)))
    return LinearMap(matrix if same else matrix[flat], np.concatenate(constants)[flat], rows.shape)


def _summed(node: Any, known: dict[Any, LinearMap]) -> LinearMap:
    whole = known[node.inputs[0]]
    axes = node.op.axis
    axes = tuple(range(len(whole.shape))) if axes is None else tuple(axes)
    shape = tuple(n for axis, n in enumerate(whole.shape) if axis not in axes)
    kept = [1 if axis in axes else n for axis, n in enumerate(whole.shape)]
    size = int(np.prod(shape))
    target = np.broadcast_to(np.arange(size).reshape(kept), whole.shape).ravel()
    adds = sparse.csr_array(
        (np.ones(target.size), (target, np.arange(target.size))), shape=(size, target.size)
    )
    return LinearMap(adds @ whole.matrix, adds @ whole.constant, shape)


def _arithmetic(node: Any, core: Any, known: dict[Any, LinearMap], fixed: set[Any]) -> LinearMap:
    """Add maps and constants, and multiply maps with public numbers."""
    linear = [var in known for var in node.inputs]
    if isinstance(core, ps.Mul | ps.TrueDiv) and (
        sum(linear) > 1 or (isinstance(core, ps.TrueDiv) and not linear[0])
    ):
        raise NotLinearError(f"{node.op} multiplies or divides by what the variables enter")
    values = [
        np.arange(known[v].constant.size).reshape(known[v].shape)
        if v in known
        else np.asarray(_public(v, fixed), dtype=float)
        for v in node.inputs
    ]
    shape = np.broadcast_shapes(*(v.shape for v in values))
    flat = [np.broadcast_to(v, shape).ravel() for v in values]
    if isinstance(core, ps.Mul | ps.TrueDiv):
        at = linear.index(True)
        whole = known[node.inputs[at]]
        others = [v for i, v in enumerate(flat) if i != at]
        scale = np.prod(np.array([np.ones(flat[0].size), *others], dtype=float), axis=0)
        scale = 1 / scale if isinstance(core, ps.TrueDiv) else scale
        rows = whole.matrix[flat[at].astype(np.int64)]
        scaled = sparse.diags_array(scale, format="csr") @ rows
        return LinearMap(scaled, scale * whole.constant[flat[at].astype(np.int64)], shape)
    matrix: Any = 0
    constant = np.zeros(flat[0].size)
    for i, (var, value) in enumerate(zip(node.inputs, flat, strict=True)):
        sign = -1.0 if isinstance(core, ps.Neg) or (isinstance(core, ps.Sub) and i) else 1.0
        if var in known:
            rows = value.astype(np.int64)
            matrix = matrix + sign * known[var].matrix[rows]
            constant = constant + sign * known[var].constant[rows]
        else:
            constant = constant + sign * value
    return LinearMap(sparse.csr_array(matrix), constant, shape)


def _product(node: Any, known: dict[Any, LinearMap], fixed: set[Any]) -> LinearMap:
    """Products with a public matrix, dense or sparse, on either side."""
    left, right = node.inputs
    if left in known and right in known:
        raise NotLinearError(f"{node.op} multiplies the variables with each other")
    whole = known[left if left in known else right]
    public = _public(right if left in known else left, fixed)
    matrix = sparse.csr_array(np.atleast_2d(public) if not sparse.issparse(public) else public)
    if len(whole.shape) > 2 or (not sparse.issparse(public) and np.ndim(public) > 2):
        raise NotLinearError(f"{node.op} of arrays with more than two axes is not read")
    flat_public = not sparse.issparse(public) and np.ndim(public) == 1
    if right in known:  # public @ whole
        columns = whole.shape[1] if len(whole.shape) == 2 else 1
        acts = sparse.kron(matrix, sparse.eye_array(columns), format="csr")
        shape = (*(() if flat_public else (matrix.shape[0],)), *whole.shape[1:])
    else:  # whole @ public
        matrix = matrix if flat_public else sparse.csr_array(matrix.T)
        rows = whole.shape[0] if len(whole.shape) == 2 else 1
        acts = sparse.kron(sparse.eye_array(rows), matrix, format="csr")
        shape = (*whole.shape[:-1], *(() if flat_public else (matrix.shape[0],)))
    acts = sparse.csr_array(acts)
    return LinearMap(sparse.csr_array(acts @ whole.matrix), acts @ whole.constant, shape)


def _public(var: Any, fixed: set[Any], only_check: bool = False) -> Any:
    """Value of an array that no variable enters."""
    used = direct_inputs([var], fixed)
    if used:
        names = ", ".join(repr(v.name) for v in used)
        raise NotLinearError(f"it also uses {names}")
    if only_check:
        return None
    return pytensor.function([], var, mode=ONCE, on_unused_input="ignore")()


def _shape_of(var: TensorVariable) -> tuple[int, ...]:
    if None not in var.type.shape:
        return tuple(int(n) for n in var.type.shape)
    return tuple(int(n) for n in var.shape.eval(mode=ONCE))
