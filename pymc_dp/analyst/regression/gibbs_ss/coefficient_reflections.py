"""Metropolis moves between modes of regression coefficients, by reflections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import LatentStatistics
from pymc_dp.analyst.regression.gibbs_ss.reflections import draw_reflection
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.layout import PointLayout
from pymc_dp.types import Array

__all__ = ["CoefficientReflections", "reflections_of"]


#: relative error below which numbers are taken for the same
_ROUNDING = 1e-8
#: reflections offered a move, without an intercept and with one: which of them keep the mean of y
_OFFERS = {False: (False, False), True: (False, True, True)}


class CoefficientReflections:
    """Offer reflected values of the coefficients of one or several vectors of statistics.

    The coefficients need not be parameters themselves: it is enough that they are affine in some
    parameters, given all others. These are moved, by the least that gives the reflected
    coefficients. In the space of the random variables this is a linear involution with a
    determinant of 1 or -1, since nothing moves that the linear map and the moments of x depend on.

    Parameters
    ----------
    model : Model
        The model.
    coef : TensorVariable
        Coefficients.
    moved : list of TensorVariable
        Parameters in which they are affine.
    latents : list of LatentStatistics
        The statistics of these coefficients; moments of x are pooled over them.
    layout : PointLayout
        Where parameters lie in theta.
    """

    def __init__(
        self,
        model: pm.Model,
        coef: TensorVariable,
        moved: Sequence[TensorVariable],
        latents: Sequence[LatentStatistics],
        layout: PointLayout,
    ) -> None:
        self.offers = _OFFERS[latents[0].layout.intercept]
        self.direct = list(moved) == [coef]
        names = [str(model.rvs_to_values[rv].name) for rv in moved]
        vector = layout.parameters
        self.places = np.concatenate([np.arange(*vector.ends(name)) for name in names])
        whole = pt.concatenate([rv.ravel() for rv in moved])
        gradients = [_gradients(coef[i], moved) for i in range(latents[0].layout.n_features)]
        outputs = [whole, coef, pt.stack(gradients), pooled_moments(latents)]
        inputs = [layout.theta, layout.given]
        packed = layout.on_arrays(model.replace_rvs_by_values(outputs))
        self.read = layout.compiled(inputs, packed)
        self.write = None
        if any(model.rvs_to_transforms[rv] is not None for rv in moved):
            drawn = pt.vector("drawn", shape=(len(self.places),), dtype="float64")
            pieces = _pieces(drawn, [vector.shapes[name] for name in names])
            outputs = _to_values(model, moved, pieces)
            packed = layout.on_arrays(outputs, keep=[drawn])
            self.write = layout.compiled([drawn, *inputs], packed)

    def move(
        self,
        rng: np.random.Generator,
        theta: Array,
        given: Array,
        log_density: float,
        density: Callable[..., Any],
    ) -> tuple[Array, float]:
        """Offer reflections one after another.

        Parameters
        ----------
        rng : Generator
            Source of randomness.
        theta, given : ndarray
            Parameters and the rest.
        log_density : float
            At theta.
        density : callable
            ``density(theta, given)`` gives it first.

        Returns
        -------
        theta : ndarray
            Where the moves end.
        log_density : float
            There.
        """
        read = self.read(theta, given)
        for centred in self.offers:
            reflection = draw_reflection(rng, read[-1], centred)
            turned, log_det = self.reflected(theta, given, read, reflection)
            if not np.isfinite(log_det):
                continue
            new = float(density(turned, given)[0])
            if -rng.standard_exponential() < new - log_density + log_det:
                theta, log_density, read = turned, new, self.read(turned, given)
        return theta, log_density

    def reflected(
        self, theta: Array, given: Array, read: Sequence[Array], reflection: Array
    ) -> tuple[Array, float]:
        """Move the parameters so that the coefficients are reflected.

        Also gives the log-determinant of this map of theta, which is that of the transforms. It is
        minus infinity where the coefficients do not follow, because some are known or they turn out
        not to be affine, and nan outside of the support.
        """
        values, coef, slopes, _ = read
        step = change = reflection @ coef - coef
        if not self.direct:
            step = np.linalg.pinv(slopes) @ change
        turned, log_det = theta.copy(), 0.0
        if self.write is None:
            turned[self.places] = values + step
        else:
            turned[self.places], after = self.write(values + step, theta, given)
            log_det = float(self.write(values, theta, given)[1] - after)
        if not self.direct and np.isfinite(log_det):
            _, new_coef, new_slopes, _ = self.read(turned, given)
            rounding = _ROUNDING * (np.abs(reflection) @ np.abs(coef) + np.abs(coef))
            follows = np.abs(new_coef - coef - change) <= rounding
            if not np.all(follows) or not np.allclose(new_slopes, slopes, _ROUNDING, 0.0):
                return theta, -np.inf
        return turned, log_det


def reflections_of(
    model: pm.Model,
    parameters: Sequence[TensorVariable],
    latents: Sequence[LatentStatistics],
    layout: PointLayout,
    point: Any,
) -> list[CoefficientReflections]:
    """Find the coefficients that can be reflected, and by which parameters."""
    users: dict[TensorVariable, list[LatentStatistics]] = {}
    for latent in latents:
        users.setdefault(latent.params[1], []).append(latent)
    found = []
    for coef, own in users.items():
        moved = _affine_parameters(model, coef, own, users, parameters, point)
        if moved:
            found.append(CoefficientReflections(model, coef, moved, own, layout))
    return found


def pooled_moments(latents: Sequence[LatentStatistics]) -> TensorVariable:
    """Second moments of the features, averaged over the records of all of them."""
    total: Any = 0.0
    for latent in latents:
        n, _, _, first, second = latent.params
        if latent.op.normal:
            moments = second + pt.outer(first, first)
            if latent.layout.intercept:
                last = pt.concatenate([first, np.ones(1)])
                moments = pt.concatenate([moments, first[None]], axis=0)
                moments = pt.concatenate([moments, last[:, None]], axis=1)
        else:
            moments = first
        total = total + n * moments
    return total / sum(latent.params[0] for latent in latents)


def _affine_parameters(
    model: pm.Model,
    coef: TensorVariable,
    latents: Sequence[LatentStatistics],
    users: dict[TensorVariable, list[LatentStatistics]],
    parameters: Sequence[TensorVariable],
    point: Any,
) -> list[TensorVariable]:
    """Choose parameters that coefficients are affine in, until they can take any value.

    First those without a transform, of these coefficients alone, that reach the most of them.
    """
    fixed = direct_inputs([pooled_moments(latents)], model.basic_RVs)
    order = []
    for rv in direct_inputs([coef], model.basic_RVs):
        transformed = model.rvs_to_transforms.get(rv) is not None
        if rv not in parameters or rv in fixed:
            continue
        if transformed and rv.type.shape != np.shape(point[str(model.rvs_to_values[rv].name)]):
            continue  # a transform to fewer or more numbers
        shared = sum(rv in direct_inputs([other], model.basic_RVs) for other in users)
        order.append((transformed, shared, -_affine_rank(model, coef, [rv], point), rv))
    moved: list[TensorVariable] = []
    rank = 0
    for *_, rv in sorted(order, key=lambda entry: entry[:3]):
        more = _affine_rank(model, coef, [*moved, rv], point)
        if more > rank:
            moved, rank = [*moved, rv], more
    return moved


def _affine_rank(
    model: pm.Model, coef: TensorVariable, moved: Sequence[TensorVariable], point: Any
) -> int:
    """Dimensions that some parameters move coefficients in; 0 where these are not affine."""
    shapes = [np.shape(point[str(model.rvs_to_values[rv].name)]) for rv in moved]
    size = sum(int(np.prod(shape)) for shape in shapes)
    drawn = pt.vector("drawn", shape=(size,), dtype="float64")
    [graph] = _at(model, [coef], moved, _pieces(drawn, shapes))
    needed = set(explicit_graph_inputs([graph]))
    others = [v for v in model.value_vars if v in needed]
    evaluate = pytensor.function([drawn, *others], graph, mode=ONCE, on_unused_input="ignore")
    rest = [point[str(v.name)] for v in others]
    at_zero = evaluate(np.zeros(size), *rest)
    for one, two in np.random.default_rng(0).normal(size=(10, 2, size)):
        together = evaluate(one + two, *rest) + at_zero
        if not np.allclose(together, evaluate(one, *rest) + evaluate(two, *rest)):
            return 0
    columns = [evaluate(row, *rest) - at_zero for row in np.eye(size)]
    return int(np.linalg.matrix_rank(np.array(columns)))


def _gradients(entry: Any, moved: Sequence[TensorVariable]) -> TensorVariable:
    found: Any = pt.grad(entry, list(moved), disconnected_inputs="ignore")
    return pt.concatenate([gradient.ravel() for gradient in found])


def _pieces(vector: TensorVariable, shapes: Sequence[tuple[int, ...]]) -> list[TensorVariable]:
    """Cut values of random variables out of a vector."""
    pieces, start = [], 0
    for shape in shapes:
        stop = start + int(np.prod(shape))
        pieces.append(vector[start:stop].reshape(shape))
        start = stop
    return pieces


def _at(
    model: pm.Model,
    graphs: Sequence[Any],
    moved: Sequence[TensorVariable],
    pieces: Sequence[TensorVariable],
) -> list[Any]:
    """Express graphs by given values of some random variables, and the model's of all others."""
    count = len(graphs)
    replaced = model.replace_rvs_by_values([*graphs, *moved])
    given: dict[Any, Any] = dict(zip(replaced[count:], pieces, strict=True))
    return clone_replace(replaced[:count], given, rebuild_strict=False)


def _to_values(
    model: pm.Model, moved: Sequence[TensorVariable], pieces: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Transform parameters; also give the log-determinant of the way back."""
    values, log_det = [], pt.as_tensor(0.0)
    for rv, piece in zip(moved, pieces, strict=True):
        transform = model.rvs_to_transforms[rv]
        if transform is None:
            values.append(piece.ravel())
            continue
        bounds = _at(model, rv.owner.inputs, moved, pieces)
        value = transform.forward(piece, *bounds)
        values.append(value.ravel())
        log_det = log_det + pt.sum(transform.log_jac_det(value, *bounds))
    return [pt.concatenate(values), log_det]
