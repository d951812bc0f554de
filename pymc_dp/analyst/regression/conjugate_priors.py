"""Find a regression's conjugate priors in a model, by what they are and not how written.

Whether they may be used is another question: of :func:`used_only_by`, since a parameter's
conditional is conjugate only where nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import InvGammaRV, MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.conjugate import NormalInverseGamma, NormalInverseWishart
from pymc_dp.analyst.regression.priors import InverseWishartRV
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.support import has_whole_support
from pymc_dp.types import Array

__all__ = [
    "bare",
    "constant",
    "describe_statistics",
    "inverse_gamma",
    "inverse_wishart",
    "normal_inverse_gamma",
    "normal_inverse_wishart",
    "normal_prior",
    "used_only_by",
]

#: a variance is tried at so many times its prior's size: no answer depends on units
_TIMES = np.array([1.0, 2.5, 1e-6, 1e6])


def bare(var: Any) -> Any:
    """Return what a variable is before axes of length one were added."""
    while var.owner is not None and isinstance(var.owner.op, DimShuffle):
        var = var.owner.inputs[0]
    return var


def used_only_by(model: pm.Model, rv: TensorVariable, users: Collection[TensorVariable]) -> bool:
    """Whether no variable of the model but these, and no potential, depends on `rv` directly."""
    others = [other for other in model.basic_RVs if other is not rv and other not in users]
    inputs = [i for other in others for i in other.owner.inputs if hasattr(i.type, "dtype")]
    return rv not in direct_inputs([*inputs, *model.potentials], model.basic_RVs)


def normal_prior(model: pm.Model, var: TensorVariable, size: int) -> tuple[Array, Array] | None:
    """Return mean and covariance of a normal variable, where both are known."""
    if not _is_normal(model, var):
        return None
    mean, spread = (constant(model, v) for v in var.owner.op.dist_params(var.owner))
    return None if mean is None or spread is None else _normal_moments(var, mean, spread, size=size)


def normal_inverse_gamma(
    model: pm.Model, coef: TensorVariable, sigma2: TensorVariable
) -> NormalInverseGamma | None:
    """Return the prior, where sigma2 is inverse gamma and coef normal with variance sigma2 V."""
    gamma = inverse_gamma(model, sigma2)
    if gamma is None:
        return None
    p = int(coef.type.shape[0] or 0)
    shape, rate = gamma
    times = _TIMES * rate / shape
    law = _normal_given(model, coef, sigma2, list(times), p)
    if law is None or not _is_one_mean(law):
        return None
    covariances = [cov / by for by, (_, cov) in zip(times, law, strict=True)]
    if not all(_is_alike(cov, covariances[0]) for cov in covariances):
        return None
    return NormalInverseGamma(law[0][0], np.linalg.inv(covariances[0]), shape, rate)


def normal_inverse_wishart(
    model: pm.Model, mean: TensorVariable, cov: TensorVariable
) -> NormalInverseWishart | None:
    """Return the prior, where cov is inverse Wishart and mean normal with variance cov / weight."""
    wishart = inverse_wishart(model, cov)
    if wishart is None:
        return None
    df, scale = wishart
    d = len(scale)
    shape = tuple(int(s) for s in cov.type.shape)
    sizes = np.sqrt(np.diag(scale))
    # what has the size of x, with correlations and without
    places = [by * np.outer(sizes, sizes) * (np.eye(d) + rho) for by in _TIMES for rho in (0, 0.5)]
    law = _normal_given(model, mean, cov, [place.reshape(shape) for place in places], d)
    if law is None or not _is_one_mean(law):
        return None
    inverse_weight = law[0][1][0, 0] / places[0][0, 0]
    expected = [inverse_weight * place for place in places]
    if not all(_is_alike(c, e) for (_, c), e in zip(law, expected, strict=True)):
        return None
    return NormalInverseWishart(law[0][0], 1 / inverse_weight, scale, df)


def inverse_wishart(model: pm.Model, var: TensorVariable) -> tuple[float, Array] | None:
    """Return degrees and scale matrix of an inverse-Wishart variable, where both are known.

    An inverse-gamma variable is one of a single covariate.
    """
    gamma = inverse_gamma(model, var)
    if gamma is not None:
        return 2 * gamma[0], np.array([[2 * gamma[1]]])
    if not _is_free(model, var) or not isinstance(var.owner.op, InverseWishartRV):
        return None
    df, scale = (constant(model, v) for v in var.owner.op.dist_params(var.owner))
    return None if df is None or scale is None else (float(df), scale)


def inverse_gamma(model: pm.Model, var: TensorVariable) -> tuple[float, float] | None:
    """Return shape and rate of an inverse-gamma variable, where both are known."""
    if not _is_free(model, var) or not isinstance(var.owner.op, InvGammaRV) or var.type.ndim:
        return None
    shape, rate = (constant(model, v) for v in var.owner.op.dist_params(var.owner))
    return None if shape is None or rate is None else (float(shape), float(rate))


def describe_statistics(model: pm.Model, s: TensorVariable) -> list[str]:
    """Say what latent regression statistics hold, and which priors are conjugate."""
    op, (n, coef, sigma2, mean, cov) = s.owner.op, s.owner.inputs[2:]
    count, names = constant(model, n), op.layout.names
    sums = ", ".join(names if len(names) <= 9 else [*names[:4], "...", *names[-2:]])
    n_records = "a latent number of" if count is None else f"n = {count:g}"
    lines = [f"sums of {sums} over {n_records} records"]
    if not op.normal:
        lines.append("x with known moments")
    elif constant(model, mean) is not None and constant(model, cov) is not None:
        lines.append("x normal, with known mean and covariance")
    else:
        found = (
            normal_inverse_wishart(model, bare(mean), bare(cov)) if op.layout.intercept else None
        )
        conjugate = "" if found is None else " (normal-inverse-Wishart prior)"
        lines.append(f"x normal, with latent mean and covariance{conjugate}")
    if normal_inverse_gamma(model, coef, sigma2) is not None:
        lines.append(f"{coef.name}, {sigma2.name}: normal-inverse-gamma prior")
    return lines


def constant(model: pm.Model, var: Any) -> Array | None:
    """Evaluate a parameter that depends on no random variable."""
    if any(v in model.basic_RVs for v in ancestors([var])):
        return None
    return np.asarray(var.eval(mode=ONCE), dtype=np.float64)


def _is_free(model: pm.Model, var: TensorVariable) -> bool:
    """Whether a variable is latent and no transform of its user's bounds it."""
    return var in model.free_RVs and has_whole_support(model, var)


def _normal_given(
    model: pm.Model, var: TensorVariable, parent: TensorVariable, values: list[Array], size: int
) -> list[tuple[Array, Array]] | None:
    """Mean and covariance of a normal variable at some values of its only random parent."""
    if not _is_normal(model, var):
        return None
    params = var.owner.op.dist_params(var.owner)
    random = {v for v in ancestors(list(params)) if v in model.basic_RVs}
    if not random <= set(ancestors([parent])) or parent not in random:
        return None
    given = parent.type()
    replacements: dict[Any, Any] = {parent: given}
    mean, spread = clone_replace(list(params), replacements, rebuild_strict=False)
    evaluate = pytensor.function([given], [mean, spread], mode=ONCE, on_unused_input="ignore")
    return [_normal_moments(var, *evaluate(value), size=size) for value in values]


def _is_one_mean(law: list[tuple[Array, Array]]) -> bool:
    """Whether laws have the same mean, beside its size and the first one's spread."""
    (mean, cov), *others = law
    close = 1e-9 * (np.abs(mean) + np.sqrt(np.diag(cov)))
    return all(bool(np.all(np.abs(other - mean) <= close)) for other, _ in others)


def _is_alike(cov: Array, other: Array) -> bool:
    """Whether covariances are the same, each entry beside the variances that belong to it."""
    sizes = np.sqrt(np.diag(other))
    return bool(np.all(np.abs(cov - other) <= 1e-9 * np.outer(sizes, sizes)))


def _is_normal(model: pm.Model, var: TensorVariable) -> bool:
    """Whether a variable is normal on the whole line."""
    return _is_free(model, var) and isinstance(var.owner.op, NormalRV | MvNormalRV)


def _normal_moments(
    var: TensorVariable, mean: Array, spread: Array, *, size: int
) -> tuple[Array, Array]:
    """Mean vector and covariance matrix from values of a normal variable's parameters."""
    if isinstance(var.owner.op, NormalRV):
        spread = np.diag(np.broadcast_to(np.square(spread), (size,)))
    return np.broadcast_to(mean, (size,)).astype(float), spread
