"""Conjugate updates of a regression's parameters given its statistics: Algorithm 1, line 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import PointType
from pymc.pytensorf import compile as pm_compile
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.conjugate import NormalInverseGamma, NormalInverseWishart
from pymc_dp.analyst.regression.conjugate_priors import (
    bare,
    normal_inverse_gamma,
    normal_inverse_wishart,
    used_only_by,
)
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import LatentStatistics

__all__ = ["ConjugateUpdates"]

Pair = tuple[TensorVariable, TensorVariable]


class ConjugateUpdates:
    """Draw coefficients and error variance, and moments of x, from their conjugate conditionals.

    Holders that share parameters add up their statistics.

    Parameters
    ----------
    model : Model
        The model.
    latents : list of LatentStatistics
        The latent statistics.
    parameters : list of TensorVariable
        What the step moves.
    compile_kwargs : dict, optional
        Passed to the compilation.

    Attributes
    ----------
    others : list of TensorVariable
        Parameters without a conjugate conditional.
    """

    def __init__(
        self,
        model: pm.Model,
        latents: Sequence[LatentStatistics],
        parameters: Sequence[TensorVariable],
        compile_kwargs: dict[str, Any] | None,
    ) -> None:
        self.gamma: dict[Pair, tuple[NormalInverseGamma, list[LatentStatistics]]] = {}
        self.wishart: dict[Pair, tuple[NormalInverseWishart, list[LatentStatistics]]] = {}
        for latent in latents:
            if np.isnan(latent.n):
                raise ValueError(
                    f'mode="paper" needs the number of records of {latent.rv.name!r}, which is a '
                    'random variable here. Use mode="coherent".'
                )
            _, coef, sigma2, mean, cov = latent.params
            gamma = normal_inverse_gamma(model, coef, sigma2)
            if gamma is not None:
                self.gamma.setdefault((coef, sigma2), (gamma, []))[1].append(latent)
            if not latent.op.normal or not latent.layout.intercept:
                continue
            pair = bare(mean), bare(cov)
            wishart = normal_inverse_wishart(model, *pair)
            if wishart is not None:
                self.wishart.setdefault(pair, (wishart, []))[1].append(latent)
        self._drop_shared(model, parameters)
        drawn = [rv for pair in [*self.gamma, *self.wishart] for rv in pair]
        self.others = [rv for rv in parameters if rv not in drawn]
        if not self.others and not drawn:
            raise ValueError("The statistics depend on no parameter that GibbsSS was given.")
        self._check_mean_is_seen(latents)
        self.names = [str(model.rvs_to_values[rv].name) for rv in drawn]
        inputs = [rv.type() for rv in drawn]
        outputs = []
        for rv, given in zip(drawn, inputs, strict=True):
            transform = model.rvs_to_transforms[rv]
            outputs.append(given if transform is None else transform.forward(given))
        self._to_values = pm_compile(inputs, outputs, **(compile_kwargs or {}))
        self._to_values.trust_input = True
        self.shapes = [tuple(int(s) for s in rv.type.shape) for rv in drawn]

    def _drop_shared(self, model: pm.Model, parameters: Sequence[TensorVariable]) -> None:
        """Leave pairs to NUTS that anything else also uses, or that this step does not move."""
        pairs: list[tuple[dict[Pair, Any], Pair]] = [
            (found, pair) for found in (self.gamma, self.wishart) for pair in found
        ]
        for found, (location, spread) in pairs:
            statistics = [latent.rv for latent in found[location, spread][1]]
            alone = used_only_by(model, location, statistics) and used_only_by(
                model, spread, [*statistics, location]
            )
            if not alone or not {location, spread} <= set(parameters):
                del found[location, spread]

    def _check_mean_is_seen(self, latents: Sequence[LatentStatistics]) -> None:
        for latent in latents:
            if latent.op.normal and not latent.layout.intercept:
                mean = bare(latent.params[3])
                if mean in self.others:
                    raise ValueError(
                        f"Without an intercept the statistics do not hold the sum of x, from which "
                        f'mode="paper" updates {mean.name!r}. Use mode="coherent".'
                    )

    def draw(self, point: PointType, rng: np.random.Generator) -> PointType:
        """Draw all of them."""
        if not self.names:
            return point
        drawn: list[Any] = []
        for gamma, latents in self.gamma.values():
            gram = sum(latent.layout.gram(point[latent.value_name], latent.n) for latent in latents)
            n = sum(latent.n for latent in latents)
            p = latents[0].layout.n_features
            posterior = gamma.updated(gram[:p, :p], gram[:p, p], gram[p, p], n)
            drawn.extend(posterior.draw(rng))
        for wishart, latents in self.wishart.values():
            gram = sum(latent.layout.gram(point[latent.value_name], latent.n) for latent in latents)
            n = sum(latent.n for latent in latents)
            d = latents[0].layout.n_covariates
            updated = wishart.updated(n, gram[:d, d], gram[:d, :d])
            drawn.extend(updated.draw(rng))
        shaped = [
            np.asarray(v, dtype=np.float64).reshape(shape)
            for v, shape in zip(drawn, self.shapes, strict=True)
        ]
        return {**point, **dict(zip(self.names, self._to_values(*shaped), strict=True))}
