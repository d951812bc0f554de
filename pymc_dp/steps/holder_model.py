"""Read a model of several holders' regression statistics: releases, and conjugate priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.additivity import direct_inputs
from pymc_dp.intervals import ONCE
from pymc_dp.kernels.normal_x import Priors, Releases
from pymc_dp.mechanisms import Gaussian, Laplace
from pymc_dp.privatized import concrete_shape
from pymc_dp.regression.wishart import CrossProductRV, GramRV
from pymc_dp.release import Release, releases
from pymc_dp.steps.regression_priors import (
    constant,
    inverse_gamma,
    inverse_wishart,
    normal_inverse_wishart,
)

__all__ = ["HolderModel", "holder_model", "is_conjugate", "is_statistic"]

Array = NDArray[np.float64]

#: axes of S and of z that run over features
_AXES = ((1, 2), (1,))


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


@dataclass(frozen=True)
class Source:
    """Where a release's numbers are: which entries of (S, z), flat and one after the other."""

    value: Any
    place: NDArray[np.int64]
    scale: Array
    first: int

    def read(self) -> Array:
        """Released numbers in units of the entries."""
        shared = isinstance(self.value, SharedVariable)
        value = self.value.get_value() if shared else self.value.eval(mode=ONCE)
        return np.asarray(value, dtype=np.float64).ravel() / self.scale

    def store(self, arrays: Sequence[Array], numbers: Array) -> None:
        """Write numbers into S (J, p, p), both triangles, and z (J, p), an intercept first."""
        S, z = arrays
        p, is_gram = z.shape[1], self.place < S.size
        j, a, b = np.unravel_index(self.place[is_gram], S.shape)
        a, b = (a + self.first) % p, (b + self.first) % p
        S[j, a, b] = S[j, b, a] = numbers[is_gram]
        j, a = np.unravel_index(self.place[~is_gram] - S.size, z.shape)
        z[j, (a + self.first) % p] = numbers[~is_gram]


def is_statistic(rv: TensorVariable) -> bool:
    """Whether a variable is a Gram matrix or cross product declared by `HolderStatistics`."""
    return isinstance(rv.owner.op, GramRV | CrossProductRV)


def holder_model(model: pm.Model) -> HolderModel:
    """Read the holders of a model, or say what keeps them from being sampled by `NormalX`."""
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
    found, sources = _read_releases(model, S, z)
    return HolderModel(S, z, [S, z, *owned], found, priors, sources)


def is_conjugate(rv: TensorVariable) -> bool:
    """Whether a parameter of holders' statistics has a conjugate prior, and no other use."""
    model = getattr(rv.tag, "pymc_dp_holders", None)
    if model is None or rv not in model.free_RVs:
        return False
    for S in (s for s in model.free_RVs if isinstance(s.owner.op, GramRV)):
        for z in (z for z in model.free_RVs if isinstance(z.owner.op, CrossProductRV)):
            if z.owner.inputs[1] is S and rv in _conjugate(model, S, z)[0]:
                return True
    return False


def _used_only_by(model: pm.Model, rv: TensorVariable, users: list[TensorVariable]) -> bool:
    others = [other for other in model.basic_RVs if other is not rv and other not in users]
    inputs = [i for other in others for i in other.owner.inputs if hasattr(i.type, "dtype")]
    return rv not in direct_inputs([*inputs, *model.potentials], model.basic_RVs)


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
    normal = _normal_prior(model, coef, p) if _used_only_by(model, coef, [z]) else None
    if normal is not None:
        owned.append(coef)
        precision, shift = normal
        if first:
            precision, shift = np.roll(precision, 1, axis=(0, 1)), np.roll(shift, 1)
    gamma = inverse_gamma(model, sigma2) if _used_only_by(model, sigma2, [z]) else None
    if gamma is not None:
        owned.append(sigma2)
    rows = _rows_prior(model, S, mean, cov)
    if rows is not None:
        owned += [mean, cov] if first else [cov]
    return owned, Priors(
        precision, shift, *(gamma or (0.0, 0.0)), *(rows or (np.zeros((p, p)), 0.0))
    )


def _normal_prior(model: pm.Model, coef: TensorVariable, p: int) -> tuple[Array, Array] | None:
    """Precision of a normal prior with known moments, and precision times mean."""
    if coef not in model.free_RVs or model.rvs_to_transforms.get(coef) is not None:
        return None
    if not isinstance(coef.owner.op, NormalRV | MvNormalRV):
        return None
    mean, spread = (constant(model, v) for v in coef.owner.op.dist_params(coef.owner))
    if mean is None or spread is None:
        return None
    scalar = isinstance(coef.owner.op, NormalRV)
    cov = np.diag(np.broadcast_to(spread, p) ** 2) if scalar else spread
    precision = np.linalg.inv(cov)
    return precision, precision @ np.broadcast_to(mean, p)


def _rows_prior(
    model: pm.Model, S: TensorVariable, mean: TensorVariable, cov: TensorVariable
) -> tuple[Array, float] | None:
    """Scale matrix and degrees of a (normal-)inverse-Wishart prior of the rows' law."""
    if not S.owner.op.first:
        wishart = inverse_wishart(model, cov)
        if wishart is None or not _used_only_by(model, cov, [S]):
            return None
        return wishart[1], float(wishart[0])
    prior = normal_inverse_wishart(model, mean, cov)
    if prior is None or not _used_only_by(model, cov, [S, mean]):
        return None
    if not _used_only_by(model, mean, [S]):
        return None
    d = len(prior.mean)
    matrix = np.empty((d + 1, d + 1))
    matrix[0, 0] = prior.weight
    matrix[0, 1:] = matrix[1:, 0] = prior.weight * prior.mean
    matrix[1:, 1:] = prior.scale + prior.weight * np.outer(prior.mean, prior.mean)
    return matrix, prior.df


def _read_releases(
    model: pm.Model, S: TensorVariable, z: TensorVariable
) -> tuple[Releases, list[Source]]:
    """Collect every release of entries of S and z, an intercept in the first place."""
    first = int(S.owner.op.first)
    n = np.asarray(S.owner.inputs[1].eval(mode=ONCE), dtype=np.float64)
    holders, p = n.size, int(S.type.shape[-1] or 0)
    shapes = (holders, p, p), (holders, p)
    hat, noise, laplace = ([np.zeros(shape) for shape in shapes] for _ in range(3))
    sources = []
    for release in releases(model):
        reached = direct_inputs([release.statistic], model.basic_RVs)
        if S not in reached and z not in reached:
            continue
        if release.rv not in model.observed_RVs:
            raise ValueError(
                f"{release.name!r} has no observed value. Pass the released numbers, "
                "observed=..., or draw them with pm.sample_prior_predictive."
            )
        place, scale = _entries(release, S, z)
        source = Source(model.rvs_to_values[release.rv], place, scale, first)
        sd, is_laplace = _noise(release)
        earlier = np.concatenate(
            [np.roll(v, -first, axes).ravel() for v, axes in zip(noise, _AXES, strict=True)]
        )
        if np.any(earlier[place] > 0) or len(set(place.tolist())) < place.size:
            twice = S if np.any(place < hat[0].size) else z
            raise ValueError(
                f"{release.name!r} releases an entry of {twice.name!r} that another release holds "
                "too. Average the two with their noise first, or use step=pm.NUTS()."
            )
        source.store(hat, source.read())
        sd = np.broadcast_to(sd, concrete_shape(release.statistic)).ravel()
        source.store(noise, sd / np.abs(scale))
        source.store(laplace, np.full(place.size, float(is_laplace)))
        sources.append(source)
    if np.any(noise[1] == 0):
        raise ValueError(
            f"Not every entry of {z.name!r} was released, and NormalX needs them all. Declare "
            "pmdp.Privatized(name, statistics[j], mechanism, observed=...) for every holder j, or "
            "use step=pm.NUTS()."
        )
    flags = [v > 0 for v in laplace]
    found = Releases(n, first, hat[0], noise[0], flags[0], hat[1], noise[1], flags[1])
    return found, [source for source in sources if isinstance(source.value, SharedVariable)]


def _noise(release: Release) -> tuple[Array, bool]:
    """Sigma or scale of a release's noise, and whether it is Laplace."""
    mechanism = release.mechanism
    if not isinstance(mechanism, Gaussian | Laplace):
        raise ValueError(
            f"{release.name!r} has {mechanism!r}: NormalX takes Gaussian and Laplace noise, on the "
            "line or on the integers. Sample with step=pm.NUTS()."
        )
    return mechanism.noise, isinstance(mechanism, Laplace)


def _entries(release: Release, S: TensorVariable, z: TensorVariable) -> tuple[Any, Array]:
    """Which entry of (S, z), and times what, each released number is before noise.

    Found by trial: every entry is changed by a factor of its own.
    """
    S_value, z_value = S.type(), z.type()
    given: dict[Any, Any] = {S: S_value, z: z_value}
    [statistic] = clone_replace([release.statistic], given)
    evaluate = pytensor.function([S_value, z_value], statistic, mode=ONCE, on_unused_input="ignore")
    size_S, size_z = int(np.prod(S.type.shape)), int(np.prod(z.type.shape))
    total = size_S + size_z
    rng = np.random.default_rng(0)
    start = rng.uniform(1, 2, total)
    factor = 1 + (1 + np.arange(total)) / (total + 1)

    def at(values: Array) -> Array:
        halves = values[:size_S].reshape(S.type.shape), values[size_S:].reshape(z.type.shape)
        return np.asarray(evaluate(*halves), dtype=np.float64).ravel()

    before, after = at(start), at(start * factor)
    with np.errstate(all="ignore"):
        index = np.round((after / before - 1) * (total + 1)) - 1
        valid = np.isfinite(index) & (index >= 0) & (index < total)
        place = np.where(valid, index, 0).astype(np.int64)
        scale = before / start[place]
        fits = np.isclose(after, scale * start[place] * factor[place], rtol=1e-9)
    if not np.all(valid & fits):
        raise ValueError(
            f"{release.name!r} is not made of entries of {S.name!r} and {z.name!r}: NormalX takes "
            "the vectors that pmdp.HolderStatistics returns, or parts and multiples of them. "
            "Sample with step=pm.NUTS()."
        )
    return _upper(place, size_S, int(S.type.shape[-1] or 0)), scale


def _upper(place: Any, size_S: int, p: int) -> Any:
    """Name an entry of a symmetric matrix by its place on or above the diagonal."""
    holder, a, b = place // (p * p), place // p % p, place % p
    upper = holder * p * p + np.minimum(a, b) * p + np.maximum(a, b)
    return np.where(place < size_S, upper, place)
