"""Random matrices of linear regression: Gram matrices X'X and cross products X'y.

Both are ordinary PyMC variables whose values on the sampler's scale are unbounded, so that NUTS
samples them too. They are non-centred there: what NUTS sees are Bartlett's standard variables, and
not matrices that follow the rows' covariance around.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.tensor.linalg import solve_triangular
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.normal_x.gram_graph import (
    gram_matrices,
    residuals,
    standardised_entries,
)
from pymc_dp.compat import (
    SymbolicRandomVariable,
    default_transform_rules,
    logprob_rules,
    support_point_rules,
)
from pymc_dp.numerics.wishart import bartlett_graph

__all__ = ["CrossProductRV", "GramRV", "GramTransform", "ones_first", "ones_last", "rows_factor"]


def ones_first(S: Any, first: int) -> Any:
    """Move the intercept of Gram matrices from the last place to the first, where it is known."""
    return pt.roll(pt.roll(S, 1, axis=-1), 1, axis=-2) if first else S


def ones_last(S: Any, first: int) -> Any:
    """Move it back to the last place."""
    return pt.roll(pt.roll(S, -1, axis=-1), -1, axis=-2) if first else S


def rows_factor(mean: Any, cov: Any, first: int) -> TensorVariable:
    """Lower triangular R with second moments R R' of a row: (1, x) where `first` is 1, else x."""
    factor = pt.linalg.cholesky(cov)
    if not first:
        return factor
    top = pt.concatenate([pt.ones((1, 1)), pt.zeros((1, cov.shape[0]))], axis=1)
    return pt.concatenate([top, pt.concatenate([mean[:, None], factor], axis=1)], axis=0)


class GramRV(SymbolicRandomVariable):
    """Gram matrices X_j'X_j (J, p, p) of holders with n_j normal rows each.

    Inputs n (J,), mean (d,) and cov (d, d) of the features. With an intercept (`first` = 1), the
    last column of X_j, p is d + 1; otherwise p is d, and the mean is not read: rows are centred.
    """

    name = "gram"
    _print_name = ("Gram", "\\operatorname{Gram}")

    def __init__(self, *args: Any, first: int, **kwargs: Any) -> None:
        self.first = first
        super().__init__(*args, **kwargs)

    @classmethod
    def rv_op(cls, n: Any, mean: Any, cov: Any, first: int) -> TensorVariable:
        """Draw S_j = R A_j A_j' R' with Bartlett's A_j."""
        rng = random_generator_type()
        inner = [n.type(), mean.type(), cov.type()]
        R = rows_factor(inner[1], inner[2], first)
        next_rng, A = bartlett_graph(rng, inner[0], R.shape[0], (inner[0].shape[0],))
        if first:
            A = A[:, 0, 0].set(pt.sqrt(inner[0]))
        root = R @ A
        signature = "[rng],(j),(d),(d,d)->[rng],(j,p,p)"
        p = cov.type.shape[0] + first
        S = pt.specify_shape(ones_last(root @ root.mT, first), (n.type.shape[0], p, p))
        outputs = [next_rng, S]
        op = cls([rng, *inner], outputs, first=first, extended_signature=signature)
        return op.make_node(pytensor.shared(np.random.default_rng()), n, mean, cov).outputs[1]

    def update(self, node: Any) -> dict:
        """Advance the generator."""
        return {node.inputs[0]: node.outputs[0]}


def _log_gram_jacobian(log_diagonal: Any, R: Any, holders: int, p: int, first: int) -> Any:
    """Log |dS / dA| for S = L L', L = R A, summed over holders (Muirhead 1982, chapter 2).

    `log_diagonal` are the logarithms of L's diagonals, one row a holder.
    """
    powers, rows = p - np.arange(p, dtype=float), np.arange(p) + 1.0
    if first:  # entry (0, 0) is known: its row has no coordinate, its column one less
        powers[0], rows[0] = powers[0] - 1, 0.0
    by_R = (rows * pt.log(pt.diagonal(R))).sum() * holders
    return (powers * log_diagonal).sum() + holders * (p - first) * np.log(2) + by_R


@logprob_rules.register(GramRV)
def _gram_logp(
    op: GramRV, values: Any, rng: Any, n: Any, mean: Any, cov: Any, **kwargs: Any
) -> Any:
    R = rows_factor(mean, cov, op.first)
    holders, p = n.type.shape[0], cov.type.shape[0] + op.first
    S = ones_first(values[0], op.first)
    lower = pt.linalg.cholesky(S)
    A = solve_triangular(R, lower, lower=True)
    degrees = n[:, None] - pt.arange(R.shape[0]).astype("float64")
    diagonal = pt.diagonal(A, axis1=-2, axis2=-1)
    chi = (degrees - 1) * pt.log(diagonal) - diagonal**2 / 2
    chi += (1 - degrees / 2) * np.log(2) - pt.gammaln(degrees / 2)
    below = pt.tril(A, -1)
    normal = -0.5 * (below**2).sum() - 0.5 * np.log(2 * np.pi) * pt.tril(pt.ones_like(A), -1).sum()
    logp = chi[:, op.first :].sum() + normal
    log_diagonal = pt.log(pt.diagonal(lower, axis1=-2, axis2=-1))
    logp = logp - _log_gram_jacobian(log_diagonal, R, holders, p, op.first)
    logp = pt.switch(pt.all(degrees > 0), logp, -np.inf)  # n may be latent
    if op.first:
        logp = pt.switch(pt.all(pt.abs(S[:, 0, 0] - n) < 1e-6 * n), logp, -np.inf)
    return logp


@support_point_rules.register(GramRV)
def _gram_support_point(op: GramRV, rv: Any, rng: Any, n: Any, mean: Any, cov: Any) -> Any:
    R = rows_factor(mean, cov, op.first)
    return ones_last(n[:, None, None] * (R @ R.T), op.first)


class GramTransform(Transform):
    """Standardised entries of Bartlett's factor, one vector for all holders.

    See :mod:`~pymc_dp.analyst.regression.normal_x.gram_graph`.
    """

    name = "bartlett"
    ndim_supp = 1

    def __init__(self, holders: int, p: int, first: int) -> None:
        self.holders, self.p, self.first = holders, p, first
        self.below = np.tril_indices(p, -1)
        self.diagonal = np.arange(first, p)

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Gram matrices from standardised entries."""
        _, n, mean, cov = inputs
        R = rows_factor(mean, cov, self.first)
        return gram_matrices(value, n, R, self.holders, self.p, self.first)

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Standardised entries of Gram matrices."""
        _, n, mean, cov = inputs
        R = rows_factor(mean, cov, self.first)
        return standardised_entries(value, n, R, self.holders, self.p, self.first)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log-determinant of the derivative of `backward`."""
        _, n, mean, cov = inputs
        R = rows_factor(mean, cov, self.first)
        own = self.diagonal.size + self.below[0].size
        logs = value.reshape((self.holders, own))[:, : self.diagonal.size]
        grown = logs / pt.sqrt(2 * n)[:, None]  # logarithms of A_ii / sqrt(n)
        if self.first:
            grown = pt.concatenate([pt.zeros((self.holders, 1)), grown], axis=1)
        log_diagonal = grown + 0.5 * pt.log(n)[:, None] + pt.log(pt.diagonal(R))
        # dA_ii / dv = A_ii / sqrt(2 n) = exp(v / sqrt(2 n)) / sqrt(2)
        constant = -0.5 * np.log(2) * self.holders * self.diagonal.size
        sizes = self.holders, self.p, self.first
        return grown.sum() + constant + _log_gram_jacobian(log_diagonal, R, *sizes)


@default_transform_rules.register(GramRV)
def _gram_transform(op: GramRV, rv: Any) -> Transform:
    holders, p, _ = rv.type.shape
    return GramTransform(holders, p, op.first)


class CrossProductRV(SymbolicRandomVariable):
    """X_j'y_j (J, p) given the Gram matrices: Normal(S_j coef, sigma2 S_j) (Proposition 3.1)."""

    name = "cross_product"
    extended_signature = "[rng],(j,p,p),(p),()->[rng],(j,p)"
    _print_name = ("CrossProduct", "\\operatorname{CrossProduct}")

    @classmethod
    def rv_op(cls, S: Any, coef: Any, sigma2: Any) -> TensorVariable:
        """Draw for all holders."""
        rng = random_generator_type()
        inner = [S.type(), coef.type(), sigma2.type()]
        size = inner[0].shape[:2]
        next_rng, noise = pt.random.normal(0, 1, size=size, rng=rng, return_next_rng=True)
        z = _cross_products(noise, *inner)
        op = cls([rng, *inner], [next_rng, z])
        return op.make_node(pytensor.shared(np.random.default_rng()), S, coef, sigma2).outputs[1]

    def update(self, node: Any) -> dict:
        """Advance the generator."""
        return {node.inputs[0]: node.outputs[0]}


def _cross_products(noise: Any, S: Any, coef: Any, sigma2: Any) -> Any:
    lower = pt.linalg.cholesky(S)
    return S @ coef + pt.sqrt(sigma2) * (lower @ noise[..., None])[..., 0]


def _log_scale(S: Any, sigma2: Any) -> Any:
    """Log-determinant of sqrt(sigma2) chol(S_j), over all holders."""
    diagonal = pt.diagonal(pt.linalg.cholesky(S), axis1=-2, axis2=-1)
    return pt.log(diagonal).sum() + 0.5 * pt.log(sigma2) * diagonal.size


@logprob_rules.register(CrossProductRV)
def _cross_logp(
    op: Any, values: Any, rng: Any, S: Any, coef: Any, sigma2: Any, **kwargs: Any
) -> Any:
    [z] = values
    noise = residuals(z, S, coef, sigma2)
    normal = -0.5 * (noise**2).sum() - 0.5 * np.log(2 * np.pi) * noise.size
    return pt.switch(sigma2 > 0, normal - _log_scale(S, pt.abs(sigma2)), -np.inf)


@support_point_rules.register(CrossProductRV)
def _cross_support_point(op: Any, rv: Any, rng: Any, S: Any, coef: Any, sigma2: Any) -> Any:
    return S @ coef


class ResidualTransform(Transform):
    """Standard normal residuals of the cross products."""

    name = "residual"
    ndim_supp = 2

    def backward(self, value: Any, *inputs: Any) -> Any:
        """Cross products from residuals."""
        return _cross_products(value, *inputs[1:])

    def forward(self, value: Any, *inputs: Any) -> Any:
        """Residuals of cross products."""
        return residuals(value, *inputs[1:])

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        """Log-determinant of the derivative of `backward`."""
        return _log_scale(inputs[1], inputs[3])


@default_transform_rules.register(CrossProductRV)
def _cross_transform(op: Any, rv: Any) -> Transform:
    return ResidualTransform()
