"""Find parameters whose conditional, given the records, is of a family that can be drawn exactly.

The prior says which families are possible. A normal conditional is read from the graph: whatever
uses the parameter is normal, with a mean that is an affine function of it. For the others the
graph tells whether the log-density is an analytic function of the parameter (no comparison, no
clipping on the way to distributions known to be smooth in it). An analytic gradient that has a
family's form at more points than the form has coefficients, over many powers of ten and for
arbitrary records, is of that family.

No answer depends on units: a test at fixed points, with a fixed tolerance, would take a scale of
1e-4 for conjugate that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
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

from pymc_dp.analyst.record_gibbs.forms import has_form, is_usable
from pymc_dp.analyst.record_gibbs.places import arbitrary_points, near
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
    Alloc, DimShuffle, Dot, ExtractDiag, Join, MakeVector, Reshape, SpecifyShape, Subtensor, Sum,
)  # fmt: skip
#: distributions of a normal variable or its logarithm, whose first parameter is its mean
_NORMAL = (rvs.NormalRV, rvs.MvNormalRV, rvs.LogNormalRV)
_AFFINE_SCALARS = (ps.Add, ps.Sub, ps.Neg, ps.Identity, ps.Cast, ps.Second)


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
    families = possible_families(rv)
    if not plain or not has_whole_support(model, rv) or not families:
        return None
    if not all(smooth_in(other, rv, model) for other in uses):
        return None
    shape = tuple(rv.shape.eval(mode=ONCE) if None in rv.type.shape else rv.type.shape)
    normal = families == ("normal",)
    if normal and int(np.prod(shape)) > MOST_NORMAL:
        return None
    if normal and not all(_is_normal_about(other, rv, model) for other in uses):
        return None
    x = pt.dvector("x")
    natural = x.reshape(shape, ndim=rv.ndim) if rv.ndim else x[0]
    terms = _log_densities(model, rv, uses, natural)
    if not normal:
        places = arbitrary_points(model, point) if places is None else places
        families = _families_at(places, point, families, model, rv, layout, x, terms)
        if not families:
            return None
    slope = pt.grad(sum(terms[1:], terms[0]), x, disconnected_inputs="ignore")
    [slope] = layout.on_arrays(model.replace_rvs_by_values([slope]), keep=[x])
    functions = [layout.compiled([x, layout.theta, layout.given, layout.table], [slope])]
    if transform is not None:
        forward = transform.forward(natural, *rv.owner.inputs).ravel()
        [forward] = layout.on_arrays(model.replace_rvs_by_values([forward]), keep=[x])
        functions.append(layout.compiled([x, layout.theta, layout.given], [forward]))
    return families[0], tuple(functions)


def _log_densities(model: pm.Model, rv: Any, uses: Sequence[Any], natural: Any) -> list[Any]:
    """Log-densities of a parameter and of what uses it, where its value is `natural`."""
    values: dict[Any, Any] = {}
    for other in uses:
        value, inner = model.rvs_to_values[other], model.rvs_to_transforms.get(other)
        values[other] = inner.backward(value, *other.owner.inputs) if inner else value
    terms = [pm.logp(rv, natural, warn_rvs=False).sum()]
    terms += [pm.logp(other, value, warn_rvs=False).sum() for other, value in values.items()]
    # children by their values too: one may be a parent of another
    return list(graph_replace(terms, {rv: natural, **values}, strict=False))


def _families_at(
    places: Sequence[PointType],
    point: PointType,
    families: tuple[str, ...],
    model: pm.Model,
    rv: Any,
    layout: PointLayout,
    x: Any,
    terms: Sequence[Any],
) -> tuple[str, ...]:
    """Families whose form the gradients of all terms have, whatever else the model's point says."""
    transform, own = model.rvs_to_transforms.get(rv), model.rvs_to_values[rv]
    if transform is not None:
        own = transform.backward(own, *rv.owner.inputs)
    each: list[Any] = [pt.grad(term, x, disconnected_inputs="ignore") for term in terms]
    graphs = layout.on_arrays(model.replace_rvs_by_values([pt.stack(each), own]), keep=[x])
    inputs = [layout.theta, layout.given, layout.table]
    # looked at in Python: numba would compile it again for the way in
    slopes = layout.compiled([x, *inputs], graphs[:1], mode=ONCE)
    own_value = layout.compiled(inputs, graphs[1:], mode=ONCE)
    rng = np.random.default_rng(0)
    for place in places:
        for at in (place, near(point, rng)):  # a vague prior's draw may under- or overflow
            arrays = [layout.theta_of(at), layout.given_of(at), layout.table_of(at)]
            [size], look = own_value(*arrays), partial(_first_output, slopes, arrays)
            if is_usable(size) and np.isfinite(look(size.ravel())).all():
                break
        families = tuple(family for family in families if has_form(family, look, size))
        if not families:
            break
    return families


def _first_output(function: Callable[..., Any], arrays: Sequence[Any], x: Any) -> Any:
    return function(x, *arrays)[0]


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
    _, rough = _reached(other, rv, model, _smooth_node)
    return not rough.intersection(other.owner.inputs)


def _is_normal_about(other: Any, rv: Any, model: pm.Model) -> bool:
    """Whether `other` is normal, its mean an affine function of `rv` and its spread none of it."""
    if not isinstance(other.owner.op, _NORMAL):
        return False
    mean, *spread = other.owner.op.dist_params(other.owner)
    affine, rough = _reached(other, rv, model, _affine_node)
    return mean not in rough and not (affine | rough).intersection(spread)


def _reached(
    other: Any, rv: Any, model: pm.Model, rule: Callable[..., bool]
) -> tuple[set[Any], set[Any]]:
    """Variables in the graph of `other` whose values depend on `rv`: as a rule allows, and not.

    ``rule(node, involved)`` decides for a node with some inputs that do, as the rule allows.
    """
    fine, rough = {rv}, set()
    for node in io_toposort([rv, *(v for v in model.basic_RVs if v is not rv)], other.owner.inputs):
        inputs = _inputs_by_value(node)
        involved = [var in fine and var in inputs for var in node.inputs]
        if any(var in rough for var in inputs):
            rough.update(node.outputs)
        elif any(involved):
            passes = rule(node, involved) or _sign_of_positive(node, rv)
            (fine if passes else rough).update(node.outputs)
    return fine, rough


def _inputs_by_value(node: Any) -> list[Any]:
    """Find the inputs of a node on whose values, not shapes alone, its output depends."""
    if isinstance(node.op, Shape | Shape_i):
        return []
    if isinstance(node.op, CheckAndRaise):  # passes its first input on
        return list(node.inputs[:1])
    if isinstance(getattr(node.op, "scalar_op", None), ps.Second):
        return list(node.inputs[1:])
    return list(node.inputs)


def _smooth_node(node: Any, involved: list[bool]) -> bool:
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, AdvancedSubtensor):
        return involved[0] and not any(involved[1:])
    if isinstance(op, Elemwise):
        return isinstance(op.scalar_op, _SMOOTH_SCALARS)
    if isinstance(op, CheckAndRaise):
        return True
    return isinstance(op, _LINEAR) and not (isinstance(op, CAReduce) and not isinstance(op, Sum))


def _affine_node(node: Any, involved: list[bool]) -> bool:
    """Whether a node is an affine function of those inputs that a parameter comes to."""
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, Elemwise):
        scalar_op = op.scalar_op
        if isinstance(scalar_op, ps.TrueDiv):
            return not involved[1]
        return isinstance(scalar_op, _AFFINE_SCALARS) or (
            isinstance(scalar_op, ps.Mul) and sum(involved) == 1
        )
    return _smooth_node(node, involved) and not (isinstance(op, Dot) and all(involved))


def _sign_of_positive(node: Any, rv: Any) -> bool:
    """Whether a node takes the sign or size of a positive parameter: what tau= does."""
    op = getattr(node.op, "scalar_op", None)
    return (
        isinstance(op, ps.Sign | ps.Abs)
        and node.inputs[0] is rv
        and "gamma" in possible_families(rv)
    )
