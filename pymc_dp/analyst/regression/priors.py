"""Inverse Wishart prior for the covariance of the covariates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pymc.distributions.dist_math import check_parameters, multigammaln
from pymc.distributions.transforms import CholeskyCovTransform
from pytensor.graph.basic import Constant
from pytensor.tensor.linalg import solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_dp.compat import (
    SymbolicRandomVariable,
    default_transform_rules,
    normalize_rng_param,
    normalize_size_param,
    rv_size_is_none,
)
from pymc_dp.numerics.wishart import bartlett_graph

__all__ = ["InverseWishart", "InverseWishartRV"]


class InverseWishartRV(SymbolicRandomVariable):
    """Inverse of a Wishart matrix."""

    extended_signature = "[rng],[size],(),(p,p)->[rng],(p,p)"
    _print_name = ("InverseWishart", "\\operatorname{InverseWishart}")

    @classmethod
    def rv_op(cls, nu: Any, psi: Any, *, size: Any = None, rng: Any = None) -> TensorVariable:
        """Draw by Bartlett's decomposition, without an inverse.

        A A' ~ Wishart(nu, I) and psi = L L' give (A^-1 L')'(A^-1 L').
        """
        nu, psi = pt.as_tensor(nu).astype("float64"), pt.as_tensor(psi).astype("float64")
        if nu.type.ndim or psi.type.ndim != 2:
            raise NotImplementedError("InverseWishart takes one nu and one matrix psi.")
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        batch = () if rv_size_is_none(size) else tuple(size)
        next_rng, A = bartlett_graph(rng, nu, psi.shape[-1], batch)
        factor = solve_triangular(A, pt.linalg.cholesky(psi).mT, lower=True, b_ndim=2)
        op = cls([rng, size, nu, psi], [next_rng, factor.mT @ factor])
        return op(rng, size, nu, psi)


class InverseWishart(Continuous):
    r"""Inverse Wishart distribution of a covariance matrix.

    .. math::

       f(T \mid \nu, \Psi) \propto |T|^{-(\nu + p + 1)/2}
           \exp\left\{-\tfrac12 \operatorname{tr}(\Psi T^{-1})\right\}

    With mean :math:`\Psi / (\nu - p - 1)`. For one covariate it is an inverse gamma distribution,
    ``pm.InverseGamma(nu / 2, psi / 2)``.

    Parameters
    ----------
    nu : tensor_like of float
        Degrees of freedom, above p - 1.
    psi : tensor_like of float
        Scale matrix, of shape (p, p), positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     tau2 = pmdp.regression.InverseWishart("tau2", nu=10, psi=np.eye(3))
    ...     mu_x = pm.MvNormal("mu_x", np.zeros(3), cov=tau2)
    """

    rv_type = InverseWishartRV
    rv_op = InverseWishartRV.rv_op

    @classmethod
    def dist(cls, nu: Any, psi: Any, **kwargs: Any) -> TensorVariable:
        """Build an unregistered variable."""
        _check_parameters(nu, psi)
        return super().dist(
            [pt.as_tensor(nu).astype("float64"), pt.as_tensor(psi).astype("float64")], **kwargs
        )

    def support_point(rv: Any, size: Any, nu: Any, psi: Any) -> Any:  # noqa: N805
        """Return the mode."""
        return pt.full_like(rv, psi / (nu + psi.shape[-1] + 1))

    def logp(value: Any, nu: Any, psi: Any) -> TensorVariable:  # noqa: N805
        """Log-density, by Cholesky factors."""
        p = value.shape[-1]
        factor, scale = pt.linalg.cholesky(value), pt.linalg.cholesky(psi)
        log_det = 2 * pt.log(pt.diagonal(factor)).sum()
        log_det_scale = 2 * pt.log(pt.diagonal(scale)).sum()
        trace = (solve_triangular(factor, scale, lower=True, b_ndim=2) ** 2).sum()
        log_p = 0.5 * (
            nu * log_det_scale - (nu + p + 1) * log_det - trace - nu * p * np.log(2)
        ) - multigammaln(nu / 2, p)
        return check_parameters(log_p, nu > p - 1, msg="nu > p - 1")


def _check_parameters(nu: Any, psi: Any) -> None:
    """Refuse numbers that no such distribution has; those of variables are seen with its density.

    Drawing, and the conjugate updates, would go on with the square root of a negative number.
    """
    nu, psi = pt.as_tensor(nu), pt.as_tensor(psi)
    p = psi.type.shape[-1] if psi.type.ndim == 2 else None
    if psi.type.ndim == 2 and None not in psi.type.shape and psi.type.shape[0] != p:
        raise ValueError(f"psi must be a square matrix, got shape {psi.type.shape}.")
    if isinstance(nu, Constant) and nu.type.ndim == 0 and p is not None:
        degrees = float(nu.data)
        if not p - 1 < degrees < np.inf:
            raise ValueError(
                f"nu = {degrees:g} degrees of freedom are too few for {p} covariates: they must be "
                f"above p - 1 = {p - 1}. Write nu={p + 1} for a weak prior, or nu={p + 2}, the "
                "first whole number for which the covariance has a mean."
            )
    if isinstance(psi, Constant) and psi.type.ndim == 2:
        scale = np.asarray(psi.data, dtype=np.float64)
        symmetric = np.all(np.isfinite(scale)) and np.allclose(scale, scale.T)
        if not symmetric or not np.linalg.eigvalsh(scale)[0] > 0:
            raise ValueError(f"psi must be symmetric and positive definite, got {scale.tolist()}.")


@default_transform_rules.register(InverseWishartRV)
def _inverse_wishart_transform(op: InverseWishartRV, rv: TensorVariable) -> CholeskyCovTransform:
    n = rv.type.shape[-1]
    return CholeskyCovTransform(n=rv.shape[-1] if n is None else n)
