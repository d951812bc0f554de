r"""Gram matrices of normal rows whose law is integrated out.

With :math:`\Sigma \sim IW(\nu, \Psi)`, without an intercept,

.. math::

    p(S_1, \dots, S_J) \propto \prod_j |S_j|^{(n_j - d - 1) / 2}
    \, \bigl|\Psi + \textstyle\sum_j S_j\bigr|^{-(\nu + \sum_j n_j) / 2}.

With one, and :math:`\mu \mid \Sigma \sim N(m, \Sigma / \kappa)`, the same holds of the matrices of
sums of squares about the means, with exponents :math:`(n_j - d - 2) / 2`, and of what is left of
the total, the prior's matrix of (1, x) included, after its first row is taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.tensor.linalg import solve_triangular
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable
from scipy import linalg
from scipy.special import multigammaln

from pymc_dp.analyst.marginal.regression.density_graphs import log_determinants
from pymc_dp.analyst.marginal.strategy import AuxiliaryRV
from pymc_dp.analyst.regression.normal_x.wishart import (
    GramTransform,
    ones_last,
    rows_factor,
)
from pymc_dp.compat import (
    SymbolicRandomVariable,
    default_transform_rules,
    logprob_rules,
    support_point_rules,
)
from pymc_dp.numerics.wishart import bartlett, bartlett_graph
from pymc_dp.types import Array

__all__ = ["MarginalGramRV", "rows_law_given"]

#: names of variables, and their dimensions where they have some
Rows = Sequence[tuple[str, tuple[str | None, ...] | None]]


class MarginalGramRV(AuxiliaryRV, SymbolicRandomVariable):
    """Gram matrices (J, p, p) of holders whose rows have one normal law, which is integrated out.

    Inputs: numbers of rows (J,); mean (d,) and covariance (d, d) of the coordinates that samplers
    move in; all that is known. `prior` is the matrix of an inverse-Wishart prior, with an intercept
    that of (1, x): [[kappa, kappa m'], [kappa m, Psi + kappa m m']]; `nu` its degrees. `rows` are
    the names of the covariance and, with an intercept, the mean of the rows, with their dimensions.
    """

    _print_name = ("MarginalGram", "\\operatorname{MarginalGram}")

    def __init__(
        self, *args: Any, prior: Array, nu: float, first: int, rows: Rows = (), **kwargs: Any
    ) -> None:
        self.prior, self.nu, self.first, self.rows = prior, nu, first, tuple(rows)
        super().__init__(*args, **kwargs)

    @classmethod
    def rv_op(
        cls, n: Any, prior: Array, nu: float, moments: Array, first: int, rows: Rows = ()
    ) -> TensorVariable:
        """Make the variable; `moments` are second moments of the rows to start from."""
        mean = moments[1:, 0] if first else np.zeros(len(moments))
        cov = moments[first:, first:] - np.outer(mean, mean)
        given = [pt.as_tensor(part).astype("float64") for part in (n, mean, cov)]
        holders = given[0].type.shape[0]
        inner = [random_generator_type(), *(part.type() for part in given)]
        rng, drawn_mean, drawn_cov = _rows_law(inner[0], prior, nu, first)
        R = rows_factor(drawn_mean, drawn_cov, first)
        p = len(prior)
        rng, A = bartlett_graph(rng, inner[1], p, (holders,))
        if first:
            A = A[:, 0, 0].set(pt.sqrt(inner[1]))
        root = R @ A
        S = pt.specify_shape(ones_last(root @ root.mT, first), (holders, p, p))
        signature = "[rng],(j),(d),(d,d)->[rng],(j,p,p)"
        options: dict[str, Any] = {
            "prior": prior,
            "nu": nu,
            "first": first,
            "rows": rows,
            "extended_signature": signature,
        }
        op = cls(inner, [rng, S], **options)
        return op.make_node(pytensor.shared(np.random.default_rng()), *given).outputs[1]


def _split(prior: Array, first: int) -> tuple[Array, float, Array]:
    """Mean, its weight, and scale matrix of a normal-inverse-Wishart prior."""
    if not first:
        return np.zeros(len(prior)), np.inf, prior
    weight = float(prior[0, 0])
    mean = prior[1:, 0] / weight
    return mean, weight, prior[1:, 1:] - weight * np.outer(mean, mean)


def _rows_law(rng: Any, prior: Array, nu: float, first: int) -> tuple[Any, Any, Any]:
    """Draw mean and covariance of the rows from their prior."""
    centre, weight, scale = _split(prior, first)
    d = len(scale)
    rng, A = bartlett_graph(rng, pt.as_tensor(float(nu)), d, ())
    upper = pt.as_tensor(np.linalg.cholesky(scale).T)
    factor = solve_triangular(A, upper, lower=True, b_ndim=2)
    cov = factor.mT @ factor
    if not first:
        return rng, pt.as_tensor(centre), cov
    rng, z = pt.random.normal(size=(d,), rng=rng, return_next_rng=True)
    return rng, centre + pt.linalg.cholesky(cov) @ z / np.sqrt(weight), cov


def rows_law_given(
    op: MarginalGramRV, S: Array, totals: Array, rng: np.random.Generator
) -> list[Array]:
    """Draw the rows' covariance and, with an intercept, their mean, given Gram matrices.

    They are conjugate: the prior's matrix and degrees, those of the rows added.

    Parameters
    ----------
    op : MarginalGramRV
        Tells the prior.
    S : array, shape (draws, p, p)
        Sums of the holders' Gram matrices, an intercept in the last place.
    totals : array, shape (draws,)
        Rows of all holders.
    rng : Generator
        Source of randomness.
    """
    first, covs, means = op.first, [], []
    for gram, total in zip(S, totals, strict=True):
        whole = op.prior + np.roll(gram, first, axis=(0, 1))
        centre, weight, scale = _split(whole, first)
        A = bartlett(rng, len(scale), op.nu + total)
        factor = linalg.solve_triangular(A, np.linalg.cholesky(scale).T, lower=True)
        covs.append(factor.T @ factor)
        # factor' z has the covariance that was drawn
        means.append(centre + factor.T @ rng.standard_normal(len(scale)) / np.sqrt(weight))
    return [np.array(covs), np.array(means)] if first else [np.array(covs)]


def _constant(op: MarginalGramRV, n: Any) -> Any:
    """Logarithm of what makes the density integrate to one."""
    _, weight, scale = _split(op.prior, op.first)
    d, total = len(scale), n.sum()
    holders = n.type.shape[0]
    found = _log_gamma((op.nu + total) / 2, d) - _log_gamma((n - op.first) / 2, d).sum()
    found += op.nu / 2 * np.linalg.slogdet(scale)[1] - multigammaln(op.nu / 2, d)
    # of the multivariate functions, a power of pi each
    found += (1 - holders) * d * (d - 1) / 4 * np.log(np.pi)
    if op.first:  # sums instead of means: n^-d each, of which n^(d/2) is the means' spread
        found -= d / 2 * (np.log(np.pi) * holders + pt.log(n).sum())
        found += d / 2 * pt.log(weight / (weight + total))
    return found


def _log_gamma(x: Any, d: int) -> Any:
    """Multivariate gamma function without its power of pi, on the log scale."""
    return pt.gammaln(x[..., None] - 0.5 * np.arange(d)).sum(axis=-1)


@logprob_rules.register(MarginalGramRV)
def _logprob(
    op: MarginalGramRV, values: Any, rng: Any, n: Any, mean: Any, cov: Any, **kwargs: Any
) -> Any:
    first, p = op.first, len(op.prior)
    S, d = pt.specify_shape(values[0], (n.type.shape[0], p, p)), p - first
    prior = np.roll(op.prior, -first, axis=(0, 1))  # the intercept in the last place, as in S
    powers, power = (n - d - 1 - first) / 2, (op.nu + n.sum()) / 2
    logp = log_determinants(S, prior, powers, power, first)
    logp += _constant(op, n) - first * (powers * pt.log(n)).sum()
    logp = pt.switch(pt.all(n > d - 1 + first), logp, -np.inf)
    if first:
        logp = pt.switch(pt.all(pt.abs(S[:, d, d] - n) < 1e-6 * n), logp, -np.inf)
    return logp


@support_point_rules.register(MarginalGramRV)
def _support_point(op: MarginalGramRV, rv: Any, rng: Any, n: Any, mean: Any, cov: Any) -> Any:
    R = rows_factor(mean, cov, op.first)
    return ones_last(n[:, None, None] * (R @ R.T), op.first)


@default_transform_rules.register(MarginalGramRV)
def _transform(op: MarginalGramRV, rv: Any) -> Transform:
    holders, p, _ = rv.type.shape
    return GramTransform(holders, p, op.first)
