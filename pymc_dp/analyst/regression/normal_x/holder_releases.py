"""Read what several holders released: which entry of S or z each number is, and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.regression.known_maps import check_known
from pymc_dp.analyst.regression.normal_x.iteration import Releases
from pymc_dp.analyst.release import Release, releases
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms import Gaussian, Laplace
from pymc_dp.types import Array

__all__ = ["Source", "entries_of", "read_releases"]


#: axes of S and of z that run over features
_AXES = ((1, 2), (1,))


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


def read_releases(
    model: pm.Model, S: TensorVariable, z: TensorVariable, n: Array | None = None
) -> tuple[Releases, list[Source]]:
    """Collect every release of entries of S and z, an intercept in the first place.

    Numbers of rows are `n`, or the model's where they are known.
    """
    first = int(S.owner.op.first)
    if n is None:
        latent = direct_inputs([S.owner.inputs[1]], model.basic_RVs)
        if latent:
            names = ", ".join(repr(rv.name) for rv in latent)
            raise ValueError(
                f"The number of rows behind {S.name!r} is latent ({names}), and NormalX takes "
                "numbers that are known: write pmdp.sample(), which integrates z out, or sample "
                "pmdp.marginalize(model)."
            )
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
        place, scale = entries_of(release, S, z)
        source = Source(model.rvs_to_values[release.rv], place, scale, first)
        sd, is_laplace = _noise(release)
        earlier = np.concatenate(
            [np.roll(v, -first, axes).ravel() for v, axes in zip(noise, _AXES, strict=True)]
        )
        if len(set(place.tolist())) < place.size:
            raise ValueError(
                f"{release.name!r} holds an entry twice; X'X is symmetric, and each unique entry "
                "is released once. Average the two, their noise is then smaller, and declare "
                "the vector that pmdp.HolderStatistics returns; or use step=pm.NUTS()."
            )
        if np.any(earlier[place] > 0):
            twice = S if np.any(earlier[place[place < hat[0].size]] > 0) else z
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


def entries_of(release: Release, S: TensorVariable, z: TensorVariable) -> tuple[Any, Array]:
    """Which entry of (S, z), and times what, each released number is before noise.

    Found by trial: every entry is changed by a factor of its own.
    """
    check_known(release, [S, z])
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
