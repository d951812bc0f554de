"""Find parameters whose conditional, given the records, is of a family that can be drawn exactly.

The prior says which families are possible, the graph whether the log-density is an analytic
function of the parameter (no comparison, no clipping on the way to distributions known to be
smooth in it). An analytic gradient that has a family's form at more points than the form has
coefficients, for arbitrary records, is of that family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.distributions import transforms
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dp.analyst.record_gibbs.places import arbitrary_points
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.layout import PointLayout
from pymc_dp.graph.support import has_whole_support

__all__ = ["MOST_NORMAL", "conjugate_family", "possible_families", "smooth_in"]

#: parameters whose joint normal conditional is drawn at the most: its cost grows with the square
MOST_NORMAL = 30

#: families that a conditional can belong to, by prior
PRIORS: dict[type, tuple[str, ...]] = {
    rvs.NormalRV: ("normal",),
    rvs.MvNormalRV: ("normal",),
    FlatRV: ("normal",),
    rvs.GammaRV: ("gamma", "inverse gamma"),
    rvs.InvGammaRV: ("gamma", "inverse gamma"),
    rvs.ExponentialRV: ("gamma", "inverse gamma"),
    HalfFlatRV: ("gamma", "inverse gamma"),
    rvs.BetaRV: ("beta",),
    rvs.UniformRV: ("beta",),
    rvs.DirichletRV: ("dirichlet",),
}

#: distributions whose log-density is analytic in their parameters, on a support without them
_SMOOTH = (
    rvs.NormalRV, rvs.MvNormalRV, rvs.LogNormalRV, rvs.HalfNormalRV, rvs.ExponentialRV,
    rvs.GammaRV, rvs.InvGammaRV, rvs.BetaRV, rvs.PoissonRV, rvs.BernoulliRV, rvs.BinomialRV,
    rvs.NegBinomialRV, rvs.GeometricRV, rvs.CategoricalRV, rvs.MultinomialRV,
)  # fmt: skip

_SMOOTH_SCALARS = (
    ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.Neg, ps.Sqr, ps.Sqrt, ps.Reciprocal, ps.Exp,
    ps.Log, ps.Log1p, ps.Expm1, ps.Identity, ps.Cast, ps.Pow, ps.Second,
)  # fmt: skip
#: transforms that map the whole support of a prior
_WHOLE_SUPPORT = (
    transforms.LogTransform, transforms.LogOddsTransform, transforms.IntervalTransform,
    transforms.SimplexTransform,
)  # fmt: skip
_LINEAR = (
    Alloc, DimShuffle, Dot, ExtractDiag, Join, MakeVector, Reshape, Shape, Shape_i, SpecifyShape,
    Subtensor, Sum,
)  # fmt: skip


def conjugate_family(
    model: pm.Model,
    rv: Any,
    uses: Sequence[Any],
    layout: PointLayout,
    point: PointType,
    places: Sequence[PointType] | None = None,
) -> tuple[str, tuple[Callable[..., Any], ...]] | None:
    """Family of a parameter's conditional, with the functions that its draw needs.

    Parameters
    ----------
    model : Model
        The model.
    rv : TensorVariable
        A parameter.
    uses : sequence
        Variables and potentials whose log-density uses it.
    layout : PointLayout
        Of the block in which it moves.
    point : dict
        A point of the model.
    places : sequence of dict, optional
        Points at which the form is looked at; by default made here, from `point`.

    Returns
    -------
    tuple or None
        The family; the gradient and, where there is a transform, the way to unconstrained values,
        as for ``make_conjugate_draw`` of :mod:`pymc_dp.analyst.record_gibbs.conjugate_draws`. None
        where it has none.
    """
    transform = model.rvs_to_transforms.get(rv)
    plain = transform is None or isinstance(transform, _WHOLE_SUPPORT)
    if not plain or not has_whole_support(model, rv) or not possible_families(rv):
        return None
    if not all(smooth_in(other, rv, model) for other in uses):
        return None
    shape = rv.shape.eval(mode=ONCE) if None in rv.type.shape else rv.type.shape
    x = pt.dvector("x")
    values: dict[Any, Any] = {}
    for other in uses:
        value, inner = model.rvs_to_values[other], model.rvs_to_transforms.get(other)
        values[other] = inner.backward(value, *other.owner.inputs) if inner else value
    natural = x.reshape(shape, ndim=rv.ndim) if rv.ndim else x[0]
    terms = [pm.logp(rv, natural, warn_rvs=False).sum()]
    terms += [pm.logp(other, value, warn_rvs=False).sum() for other, value in values.items()]
    # children by their values too: one may be a parent of another
    given = {rv: natural, **values}
    total = graph_replace([sum(terms[1:], terms[0])], given, strict=False)[0]
    slope = pt.grad(total, x, disconnected_inputs="ignore")
    inputs = [layout.theta, layout.given, layout.table]
    [slope] = layout.on_arrays(model.replace_rvs_by_values([slope]), keep=[x])
    # looked at in Python: numba would compile it again for the way in
    gradient = layout.compiled([x, *inputs], [slope], mode=ONCE)
    places = arbitrary_points(model, point) if places is None else places
    arrays = [[p.theta_of(at), p.given_of(at), p.table_of(at)] for p in [layout] for at in places]
    for family in possible_families(rv):
        if all(has_form(family, gradient, tuple(shape), given) for given in arrays):
            break
    else:
        return None
    functions = [layout.compiled([x, *inputs], [slope])]
    if transform is not None:
        forward = transform.forward(natural, *rv.owner.inputs).ravel()
        [forward] = layout.on_arrays(model.replace_rvs_by_values([forward]), keep=[x])
        functions.append(layout.compiled([x, *inputs[:2]], [forward]))
    return family, tuple(functions)


def possible_families(rv: Any) -> tuple[str, ...]:
    """Families that the conditional of a parameter with this prior can belong to."""
    op = rv.owner.op
    found = next((families for cls, families in PRIORS.items() if isinstance(op, cls)), ())
    if isinstance(op, rvs.UniformRV):
        ends = [end.data for end in op.dist_params(rv.owner) if isinstance(end, Constant)]
        if len(ends) < 2 or (np.asarray(ends[0]) != 0).any() or (np.asarray(ends[1]) != 1).any():
            return ()
    return found


def smooth_in(other: Any, rv: Any, model: pm.Model) -> bool:
    """Whether the log-density of `other` is an analytic function of a parameter of it."""
    if other not in model.basic_RVs or not isinstance(other.owner.op, _SMOOTH):
        return False
    transform = model.rvs_to_transforms.get(other)
    if (
        other.owner.op.ndim_supp == 0
        and transform is not None
        and not isinstance(transform, transforms.LogTransform)
    ):
        return False
    smooth, rough = {rv}, set()
    for node in io_toposort([rv, *(v for v in model.basic_RVs if v is not rv)], other.owner.inputs):
        # a check of parameters passes its first input on
        inputs = node.inputs[:1] if isinstance(node.op, CheckAndRaise) else node.inputs
        involved = [var in smooth for var in inputs]
        if any(var in rough for var in inputs):
            rough.update(node.outputs)
        elif any(involved):
            fine = _smooth_node(node, involved) or _sign_of_positive(node, rv)
            (smooth if fine else rough).update(node.outputs)
    return not any(var in rough for var in other.owner.inputs)


def _smooth_node(node: Any, involved: list[bool]) -> bool:
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, AdvancedSubtensor):
        return involved[0] and not any(involved[1:])
    if isinstance(op, Elemwise):
        return isinstance(op.scalar_op, _SMOOTH_SCALARS)
    if isinstance(op, CheckAndRaise):
        return True
    return isinstance(op, _LINEAR) and not (isinstance(op, CAReduce) and not isinstance(op, Sum))


def _sign_of_positive(node: Any, rv: Any) -> bool:
    """Whether a node takes the sign or size of a positive parameter: what tau= does."""
    op = getattr(node.op, "scalar_op", None)
    return (
        isinstance(op, ps.Sign | ps.Abs)
        and node.inputs[0] is rv
        and "gamma" in possible_families(rv)
    )


def has_form(
    family: str,
    gradient: Callable[..., Any],
    shape: tuple[int, ...],
    given: Sequence[NDArray[np.float64]],
) -> bool:
    """Whether a gradient has the form of a family, at random points beyond those that fix it."""
    size, rng = int(np.prod(shape)), np.random.default_rng(0)
    if family == "normal" and size > MOST_NORMAL:
        return False
    fit, terms = _FORMS[family]
    points = [fit(rng, size, shape) for _ in range(5)]
    slopes = np.array([gradient(x, *given)[0] for x in points])
    scale = np.abs(slopes).max(axis=0, initial=0) + 1  # of each: a steep one hides no other
    if not np.isfinite(slopes).all():
        return False
    if family == "normal":  # any combination of points has the combined gradient
        weights = rng.normal(size=5)
        weights /= weights.sum()
        combined = gradient(weights @ np.array(points), *given)[0]
        return bool(np.all(np.abs(combined - weights @ slopes) < 1e-7 * scale))
    for i in range(size):
        columns = np.column_stack([term(np.array([x[i] for x in points])) for term in terms])
        found = np.linalg.lstsq(columns, slopes[:, i], rcond=None)[0]
        if np.abs(columns @ found - slopes[:, i]).max() > 1e-7 * scale[i]:
            return False
    return True


def _anywhere(rng: Any, size: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.normal(size=size)


def _positive(rng: Any, size: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.uniform(0.5, 3, size=size)


def _share(rng: Any, size: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    return rng.uniform(0.1, 0.9, size=size)


def _shares(rng: Any, size: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    x = rng.uniform(0.5, 1.5, size=shape)
    return (x / x.sum(axis=-1, keepdims=True)).ravel()


#: where the gradient of a family is looked at, and the terms that it consists of
_FORMS: dict[str, Any] = {
    "normal": (_anywhere, ()),
    "gamma": (_positive, (np.reciprocal, np.ones_like)),
    "inverse gamma": (_positive, (np.reciprocal, lambda x: x**-2.0)),
    "beta": (_share, (np.reciprocal, lambda x: 1 / (1 - x))),
    "dirichlet": (_shares, (np.reciprocal,)),
}
