"""Count alike rows once: records with the same covariates and releases have the same density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import copy_stack_trace, node_rewriter
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.math import Sum
from pytensor.tensor.rewriting.basic import register_canonicalize
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.additivity import NotAdditiveError, PerRecord, per_record_forms

__all__ = ["distinct_rows", "over_distinct_rows"]

#: rows by which it is told whether many are alike, before all are sorted
TRIAL = 1000
#: name of the index by which rows are told which kind they are of
KINDS = "pymc_dp: kinds of rows"


def over_distinct_rows(density: Any, params: Sequence[Any]) -> TensorVariable:
    """Compute the entries of a vector for distinct rows of the constants behind it.

    Parameters
    ----------
    density : TensorVariable of shape (n,)
        Entry i depends on row i of constant arrays with n rows, and on `params`.
    params : sequence of Variable
        What is not constant in it.

    Returns
    -------
    TensorVariable of shape (n,)
        The same numbers; `density` itself where few rows are alike, or where it is not plain from
        the graph that rows are kept apart.
    """
    n = density.type.shape[0]
    if n is None or any(n in shape or None in shape for shape in map(_shape, params)):
        return density
    arrays: list[Any] = [
        var
        for var in graph_inputs([density])
        if isinstance(var, Constant) and _shape(var)[:1] == (n,) and _shape(var) != (1,)
    ]
    if not arrays:
        return density
    first, place = distinct_rows([np.asarray(var.data) for var in arrays])
    if 2 * len(first) > n:
        return density
    try:
        forms = per_record_forms(density, dict.fromkeys(arrays, 0))
        replaced: dict[Any, Any] = {var: pt.constant(np.asarray(var.data)[first]) for var in arrays}
        shorter: Any = clone_replace(density, replaced, rebuild_strict=False)
    except (NotAdditiveError, ValueError, TypeError):
        return density
    # an array of n entries that is no constant would have been broadcast against one row
    if forms.get(density) != PerRecord(0) or shorter.type.shape != (len(first),):
        return density
    return shorter[pt.constant(place, name=KINDS)]


def distinct_rows(arrays: Sequence[NDArray]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tell which rows of some arrays with a common first axis are alike.

    Returns
    -------
    first : array of shape (m,)
        A row of each kind.
    place : array of shape (n,)
        Which of these every row is. Where already a trial finds few alike, all count as distinct.
    """
    n = len(arrays[0])
    table = np.column_stack([np.reshape(array, (n, -1)).astype(np.float64) for array in arrays])
    if n > TRIAL and 2 * len(np.unique(table[:TRIAL], axis=0)) > TRIAL:
        return np.arange(n), np.arange(n)
    _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first, place.ravel()


def _shape(var: Any) -> tuple[int | None, ...]:
    return tuple(getattr(var.type, "shape", ()))


@register_canonicalize
@node_rewriter([Sum])
def sum_over_kinds(fgraph: Any, node: Any) -> list[Any] | None:
    """Sum repeated rows as each kind times how often it is there.

    Of what :func:`over_distinct_rows` returns, and of nothing else.
    """
    repeated = node.inputs[0].owner
    if repeated is None or not isinstance(repeated.op, AdvancedSubtensor):
        return None
    rows, *index = repeated.inputs
    if rows.type.ndim != 1 or len(index) != 1 or index[0].name != KINDS:
        return None
    counts = np.bincount(index[0].data).astype(rows.dtype)
    total = pt.sum(counts * rows)  # which is fused with what the rows are computed by
    copy_stack_trace(node.outputs[0], total)
    return [total]
