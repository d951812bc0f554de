"""Read a model of several holders' regression statistics: releases, and conjugate priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.conjugate_priors import (
    inverse_gamma,
    inverse_wishart,
    normal_inverse_wishart,
    normal_prior,
    used_only_by,
)
from pymc_dp.analyst.regression.normal_x.holder_releases import Source, read_releases
from pymc_dp.analyst.regression.normal_x.iteration import Priors, Releases
from pymc_dp.analyst.regression.normal_x.wishart import CrossProductRV, GramRV
from pymc_dp.types import Array

__all__ = ["HolderModel", "holder_model", "is_conjugate", "is_statistic"]


@dataclass(frozen=True)
class HolderModel:
    """The part of a model that :class:`~pymc_dp.NormalX` samples.

    Attributes
    ----------
    S, z : TensorVariable
        Gram matrices and cross products.
    owned : list of TensorVariable
        All variables that the step moves: S, z and the parameters with conjugate priors.
    releases : Releases
        What was released, an intercept in the first place.
    priors : Priors
        Conjugate priors.
    sources : list of Source
        Releases in ``pm.Data``, which may change.
    """

    S: TensorVariable
    z: TensorVariable
    owned: list[TensorVariable]
    releases: Releases
    priors: Priors
    sources: list[Source]

    @property
    def parameters(self) -> dict[str, TensorVariable]:
        """Parameters of S and z by name."""
        _, _, mean, cov = self.S.owner.inputs
        _, _, coef, sigma2 = self.z.owner.inputs
        return {"coef": coef, "sigma2": sigma2, "mean": mean, "cov": cov}

    def keeping(self, given: Sequence[TensorVariable]) -> HolderModel:
        """Return the same model without the parameters that were not given."""
        named, priors = self.parameters, self.priors
        if named["coef"] not in given:
            priors = priors._replace(coef_precision=np.zeros((0, 0)), coef_shift=np.zeros(0))
        if named["sigma2"] not in given:
            priors = priors._replace(sigma2_shape=0.0)
        rows = [rv for rv in self.owned if rv in (named["mean"], named["cov"])]
        if not all(rv in given for rv in rows):
            priors = priors._replace(rows_nu=0.0)
        else:
            rows = []
        owned = [rv for rv in self.owned if rv in given and rv not in rows]
        return replace(self, owned=owned, priors=priors)


def is_statistic(rv: TensorVariable) -> bool:
    """Whether a variable is a Gram matrix or cross product declared by `HolderStatistics`."""
    return isinstance(rv.owner.op, GramRV | CrossProductRV)


def holder_model(model: pm.Model, n: Array | None = None) -> HolderModel:
    """Read the holders of a model, or say what keeps them from being sampled by `NormalX`.

    `n` are numbers of rows to take where the model's are latent.
    """
    grams = [rv for rv in model.free_RVs if isinstance(rv.owner.op, GramRV)]
    if len(grams) != 1:
        raise ValueError(
            f"The model has {len(grams)} tables of holders, and NormalX samples one: declare all "
            "holders in one pmdp.HolderStatistics(name, n=[...], ...)."
        )
    [S] = grams
    [z] = [
        rv
        for rv in model.free_RVs
        if isinstance(rv.owner.op, CrossProductRV) and rv.owner.inputs[1] is S
    ]
    owned, priors = _conjugate(model, S, z)
    found, sources = read_releases(model, S, z, n)
    return HolderModel(S, z, [S, z, *owned], found, priors, sources)


def is_conjugate(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a parameter of holders' statistics has a conjugate prior, and no other use."""
    for z in (z for z in model.free_RVs if isinstance(z.owner.op, CrossProductRV)):
        S = z.owner.inputs[1]
        uses = rv in S.owner.inputs or rv in z.owner.inputs
        if S in model.free_RVs and uses and rv in _conjugate(model, S, z)[0]:
            return True
    return False


def _conjugate(
    model: pm.Model, S: TensorVariable, z: TensorVariable
) -> tuple[list[TensorVariable], Priors]:
    """Parameters with conjugate priors that nothing else in the model uses."""
    _, _, mean, cov = S.owner.inputs
    _, _, coef, sigma2 = z.owner.inputs
    first = S.owner.op.first
    p = int(S.type.shape[-1] or 0)
    owned: list[TensorVariable] = []
    precision, shift = np.zeros((0, 0)), np.zeros(0)
    normal = normal_prior(model, coef, p) if used_only_by(model, coef, [z]) else None
    if normal is not None:
        owned.append(coef)
        precision = np.linalg.inv(normal[1])
        shift = precision @ normal[0]
        if first:
            precision, shift = np.roll(precision, 1, axis=(0, 1)), np.roll(shift, 1)
    gamma = inverse_gamma(model, sigma2) if used_only_by(model, sigma2, [z]) else None
    if gamma is not None:
        owned.append(sigma2)
    rows = _rows_prior(model, S, mean, cov)
    if rows is not None:
        owned += [mean, cov] if first else [cov]
    return owned, Priors(
        precision, shift, *(gamma or (0.0, 0.0)), *(rows or (np.zeros((p, p)), 0.0))
    )


def _rows_prior(
    model: pm.Model, S: TensorVariable, mean: TensorVariable, cov: TensorVariable
) -> tuple[Array, float] | None:
    """Scale matrix and degrees of a (normal-)inverse-Wishart prior of the rows' law."""
    if not S.owner.op.first:
        wishart = inverse_wishart(model, cov)
        if wishart is None or not used_only_by(model, cov, [S]):
            return None
        return wishart[1], wishart[0]
    prior = normal_inverse_wishart(model, mean, cov)
    if prior is None or not used_only_by(model, cov, [S, mean]):
        return None
    if not used_only_by(model, mean, [S]):
        return None
    d = len(prior.mean)
    matrix = np.empty((d + 1, d + 1))
    matrix[0, 0] = prior.weight
    matrix[0, 1:] = matrix[1:, 0] = prior.weight * prior.mean
    matrix[1:, 1:] = prior.scale + prior.weight * np.outer(prior.mean, prior.mean)
    return matrix, prior.df
