"""Declare, inside a PyMC model, what was released about its confidential records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pymc.vartypes import discrete_types
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.count_gibbs.cells import check_cell_totals, linear_release, sums_rows
from pymc_dp.analyst.invariants import check_totals
from pymc_dp.analyst.records import form_of_statistic
from pymc_dp.analyst.regression.distribution import smoothed
from pymc_dp.analyst.release import PrivatizedRV
from pymc_dp.graph.additivity import Additive, direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.sensitivity import check_declared
from pymc_dp.mechanisms import Exact, Mechanism
from pymc_dp.numerics.arguments import numbers

__all__ = ["Privatized", "clamp"]


def Privatized(  # noqa: N802  (a distribution to its users, who write pm.Normal beside it)
    name: str,
    statistic: TensorVariable,
    mechanism: Mechanism,
    *,
    observed: Any = None,
    dims: Any = None,
) -> TensorVariable:
    """Declare that a statistic of confidential records was released with privacy noise.

    The result is an ordinary PyMC variable: the model's log-density, prior and posterior
    predictive draws, ``pm.set_data``, ``pm.model_to_graphviz`` and NUTS work as for any other.
    ``pm.sample`` picks :class:`~pymc_dp.RecordGibbs` for the record variables whose sum over
    records the statistic is.

    Parameters
    ----------
    name : str
        Name of the released value in the model.
    statistic : TensorVariable
        What was computed from the records before noise, in plain PyTensor: a scalar, vector or
        matrix. Records are random variables with one record a row, along their first axis.
    mechanism : Mechanism
        The noise, e.g. ``pmdp.Laplace(epsilon=1, sensitivity=10)``.
    observed : array_like or pm.Data, optional
        The released value. Without it the release is a free variable, which prior predictive
        sampling draws.
    dims : str or sequence of str, optional
        Names of the dimensions, as for PyMC distributions.

    Returns
    -------
    TensorVariable
        The released value.

    References
    ----------
    Ju, Awan, Gong & Rao (2022). Data augmentation MCMC for Bayesian inference from privatized
    data. Equation (4) is the joint density that the model then has.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = pm.Normal("x", mu, 1, shape=100)
    ...     total = pmdp.clamp(x, -5, 5).sum()
    ...     released = pmdp.Privatized("released", total, pmdp.Laplace(scale=10), observed=103.0)
    """
    model = pm.modelcontext(None)
    statistic = pt.as_tensor_variable(statistic)
    if not isinstance(mechanism, Mechanism):
        raise TypeError(
            f"The mechanism of {name!r} is {mechanism!r}. Write the noise that was added, "
            "e.g. pmdp.Laplace(scale=10) or pmdp.Gaussian(sigma=3)."
        )
    _check_reaches_latents(name, statistic, model)
    _check_fixed_lengths(name, statistic, model)
    mechanism = smoothed(mechanism, statistic, model)
    shape = concrete_shape(statistic)
    mechanism.check_statistic(name, statistic, shape)
    if observed is not None:
        observed = _checked_release(name, observed, mechanism, shape)

    rv = PrivatizedRV.rv_op(statistic.astype("float64"), mechanism)
    _check_density_is_closed(name, mechanism, rv, model)
    dims = (dims,) if isinstance(dims, str) else dims
    rv = model.register_rv(rv, name, observed=observed, dims=dims)
    _check_statistic(name, statistic, mechanism, observed, model)
    return rv


def clamp(x: Any, lower: ArrayLike, upper: ArrayLike) -> TensorVariable:
    """Bound each value to ``[lower, upper]``, as the data holder did before summing.

    The bounds must not depend on the data: they make the sensitivity of a sum finite, and
    :func:`~pymc_dp.explain` derives it from them.

    Parameters
    ----------
    x : TensorVariable
        Records, or values computed from each of them.
    lower, upper : float or array_like
        The bounds, lower below upper.

    Returns
    -------
    TensorVariable
        Of `x`'s shape.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.clamp([-7.0, 0.5, 9.0], -5, 5).eval()
    array([-5. ,  0.5,  5. ])
    """
    x = pt.as_tensor_variable(x)
    # small Python integers would become int8, and sums of int8 overflow
    dtype = "int64" if x.dtype in discrete_types else "float64"
    low, high = numbers("lower", lower).astype(dtype), numbers("upper", upper).astype(dtype)
    if np.any(low != np.asarray(lower)) or np.any(high != np.asarray(upper)):
        raise ValueError(f"Bounds of integer records must be whole numbers: {lower!r}, {upper!r}.")
    if not np.all(low < high):
        raise ValueError(f"clamp needs lower < upper, got lower={lower!r} and upper={upper!r}.")
    return pt.clip(x, low, high)


def _check_reaches_latents(name: str, statistic: TensorVariable, model: pm.Model) -> None:
    reached = direct_inputs([statistic], model.basic_RVs)
    if any(rv in model.free_RVs for rv in reached):
        return
    if reached:
        names = ", ".join(repr(rv.name) for rv in reached)
        raise ValueError(
            f"The statistic of {name!r} uses only variables with observed values ({names}). "
            f"Confidential records are latent: drop observed= where {names} is declared."
        )
    raise ValueError(
        f"No record variable reaches the statistic of {name!r}. Compute it from a random variable "
        f'of the model, e.g. x = pm.Normal("x", mu, 1, shape=n), then '
        f'pmdp.Privatized("{name}", pmdp.clamp(x, lower, upper).sum(), ...).'
    )


def _check_density_is_closed(
    name: str, mechanism: Mechanism, rv: TensorVariable, model: pm.Model
) -> None:
    """Refuse a user's density that uses variables which the graph does not know of.

    PyMC could not replace them, by their values or by those of a copy of the model.
    """
    if mechanism.elementwise:  # its parameters are arrays
        return
    given = [rv.type(), rv.owner.inputs[1].type()]
    density = mechanism.logp(*given)
    if all(var in given or isinstance(var, Constant) for var in graph_inputs([density])):
        return
    known = direct_inputs([density], model.named_vars.values())
    names = ", ".join(repr(var.name) for var in known) or "variables"
    raise ValueError(
        f"The density of {name!r} uses {names} besides the released value and the statistic. Write "
        "public numbers in it as plain arrays, and make what is latent part of the statistic."
    )


def _check_statistic(
    name: str, statistic: TensorVariable, mechanism: Mechanism, observed: Any, model: pm.Model
) -> None:
    """Compare what was declared with what one record can add to the statistic."""
    records, form = form_of_statistic(statistic, model)
    for rv in records:
        if rv.type.shape[0] == 0:
            raise ValueError(
                f"{rv.name!r} has no records: its first axis has length 0. "
                "Declare it with shape=n, n the number of records behind the release."
            )
    contributions = form.contributions if isinstance(form, Additive) else None
    of_cells = linear_release(statistic, model)
    # a cell is no record: the map does not tell what one person adds
    if contributions is not None and (
        of_cells is None or all(sums_rows(rv, of_cells[0], of_cells[2]) for rv in records)
    ):
        check_declared(name, mechanism, contributions, records)
    if isinstance(mechanism, Exact) and observed is not None:
        value = observed.eval(mode=ONCE) if isinstance(observed, Variable) else observed
        if of_cells is None:
            check_totals(name, records, contributions, value)
        else:
            check_cell_totals(name, *of_cells, value)


def _check_fixed_lengths(name: str, statistic: TensorVariable, model: pm.Model) -> None:
    """Refuse records whose number is random: evaluated, it would be any one draw of it."""
    for rv in direct_inputs([statistic], model.basic_RVs):
        if None not in rv.type.shape:
            continue
        shape = pytensor.function([], rv.shape, mode=ONCE, on_unused_input="ignore")
        nodes = shape.maker.fgraph.apply_nodes
        if any(isinstance(node.op, RNGConsumerOp) for node in nodes):
            raise ValueError(
                f"The shape of {rv.name!r}, which the statistic of {name!r} uses, is random. A "
                "table of unknown length is written with as many rows as it may have and a "
                'variable that says which are there: z = pm.Bernoulli("z", rho, shape=n_max), '
                "then sums of z * clamp(x, lower, upper)."
            )


def concrete_shape(var: TensorVariable) -> tuple[int, ...]:
    """Shape of a variable whose shape does not depend on other variables' values."""
    if None not in var.type.shape:
        return tuple(int(s) for s in var.type.shape)
    return tuple(int(s) for s in pt.as_tensor(var.shape).eval(mode=ONCE))


def _checked_release(name: str, observed: Any, mechanism: Mechanism, shape: tuple[int, ...]) -> Any:
    """Return a released value fit to be observed, or say what is wrong with it."""
    if np.ma.isMaskedArray(observed):
        raise ValueError(f"The released value of {name!r} is masked: every entry must be known.")
    value = observed
    if isinstance(observed, SharedVariable):
        value = observed.get_value()
    elif isinstance(observed, Variable):
        value = observed.eval(mode=ONCE)
    checked = mechanism.checked_release(name, np.asarray(value), mechanism.released_shape(shape))
    if isinstance(observed, Variable):
        return observed
    # PyMC takes observed integers for 32 bits long, and would cut longer ones off
    return checked if np.all(np.abs(checked) < 2**31) else checked.astype(float)
