"""Log-densities of record variables and their derivatives, each by the parameters that it knows.

Covariates with a law of their own have many parameters that no response depends on. So every
variable's density is differentiated by itself, and that of covariates once for all values of a
response that is summed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.graph.traversal import ancestors
from pytensor.scalar.math import Softplus
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.type import random_generator_type

from pymc_dp.analyst.score.bounding import scores
from pymc_dp.analyst.score.graph import constrained
from pymc_dp.graph.rewrites import rebuilt, without_checks
from pymc_dp.graph.vector import VectorLayout
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["Column", "Density", "log_density", "own_coordinates"]


def _plain_softplus(fgraph: Any, node: Apply) -> list[Any] | None:
    """Write softplus with NumPy's own functions: PyTensor calls Python for every number."""
    if not isinstance(node.op.scalar_op, Softplus):
        return None
    [x] = node.inputs
    return [(pt.maximum(x, 0) + pt.log1p(pt.exp(-pt.abs(x)))).astype(node.outputs[0].type.dtype)]


#: rows are many and operations few: NumPy does, and takes no time to compile
_ROWWISE = (
    Mode(linker="py", optimizer="fast_run")
    .excluding("fusion", "inplace")
    .register((out2in(node_rewriter([Elemwise])(_plain_softplus), name="plain_softplus"), 49.5))
)
_STEP = 1e-3  # of an unconstrained parameter, for second derivatives


class Column(NamedTuple):
    """Second derivatives by one coordinate and by those of `own`, one record a column."""

    coordinate: int
    own: NDArray[np.int64]
    values: Matrix


class Density:
    """Log-density of a record variable's rows, with slopes by the parameters it depends on.

    Parameters
    ----------
    rv : Variable
        The record variable.
    slots : dict
        Rows of all record variables of its block, by variable.
    model : pymc.Model
        Where it is.
    layout : VectorLayout
        Unconstrained parameters.
    """

    def __init__(
        self, rv: Variable, slots: dict[Variable, Variable], model: pm.Model, layout: VectorLayout
    ) -> None:
        theta = pt.dvector("theta")
        density = log_density(rv, slots, constrained(model, layout, theta))
        self.own, self._size = own_coordinates(rv, slots, model, layout), layout.size
        slopes = pt.zeros((0, density.shape[0]))
        if self.own.size:
            slopes = scores(density, theta, pt.as_tensor(np.eye(layout.size)[self.own]))
        self._density, self._slopes = (
            pytensor.function(
                [theta, *slots.values()], output, mode=_ROWWISE, on_unused_input="ignore"
            )
            for output in (density, slopes)
        )

    def __call__(self, theta: Vector, rows: Sequence[NDArray[Any]]) -> tuple[Vector, Matrix]:
        """Log-density of rows, and its slopes by all parameters, one record a column."""
        density = self._density(theta, *rows)
        whole = np.zeros((self._size, density.size))
        whole[self.own] = self._slopes(theta, *rows)
        return density, whole

    def columns(self, theta: Vector, rows: Sequence[NDArray[Any]]) -> Iterator[Column]:
        """Differentiate the slopes, by differences."""
        for j in self.own.tolist():
            step = _STEP * (np.arange(self._size) == j)
            up, down = (self._slopes(at, *rows) for at in (theta + step, theta - step))
            values = np.broadcast_to((up - down) / (2 * _STEP), (self.own.size, len(rows[0])))
            yield Column(j, self.own, values)


def own_coordinates(
    rv: Variable, records: Any, model: pm.Model, layout: VectorLayout
) -> NDArray[np.int64]:
    """Coordinates of the parameters that a variable depends on given the other records."""
    others = [each for each in records if each is not rv]
    reached = set(ancestors(rv.owner.inputs, others))
    known = {
        str(model.rvs_to_values[each].name)
        for each in model.free_RVs
        if each in reached and each not in others
    }
    slices = [where for name, where in layout.slices.items() if name in known]
    return np.array([i for where in slices for i in range(where.start, where.stop)], dtype=np.int64)


def log_density(
    rv: Variable, slots: dict[Variable, Variable], swap: dict[Variable, Variable]
) -> Variable:
    """Log-density of a record variable's rows."""
    op = rv.owner.op
    given = [rebuilt(each, swap | slots) for each in op.dist_params(rv.owner)]
    if op.name == "multivariate_normal" and all(given[1].type.broadcastable[:-2]):
        covariance = given[1].squeeze(tuple(range(given[1].type.ndim - 2)))
        return _normal_rows(slots[rv], given[0], covariance)
    law = op.make_node(random_generator_type(), None, *given).outputs[1]
    logp = without_checks(pm.logp(law, slots[rv], warn_rvs=False))
    return logp.sum(axis=tuple(range(1, logp.type.ndim)))


def _normal_rows(rows: Variable, mean: Variable, covariance: Variable) -> Variable:
    """Log-density of rows of one multivariate normal law.

    PyMC's solves for every row, and its derivative for every row and parameter; here a small matrix
    is inverted once.
    """
    root: Any = pt.linalg.cholesky(covariance)
    inverse = pt.linalg.solve_triangular(root, pt.eye(root.shape[0]), lower=True)
    z = (rows - mean) @ inverse.T
    constant = pt.log(pt.diag(root)).sum() + 0.5 * np.log(2 * np.pi) * root.shape[0]
    return -0.5 * pt.sqr(z).sum(axis=1) - constant
