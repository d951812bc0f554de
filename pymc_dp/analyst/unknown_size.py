"""How many records there are, where only a noisy count of them was released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.vartypes import discrete_types
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.types import Variable

__all__ = ["Presence", "presences", "unknown_size"]

#: prior mass that may lie outside the table
_NOTHING = 1e-9


class Presence(OpFromGraph):
    """Which rows of a table are records: the first n of them."""


def unknown_size(name: str, prior: Any, *, n_max: int | None = None) -> TensorVariable:
    """Declare that the number of records is not known, and get which rows of a table are there.

    Where neighbouring data sets differ by a record that is added or removed, the number of records
    is itself confidential, and at best a noisy count of them is released. Records are then
    declared with as many rows as there may be, and sums are taken over those that are there.

    Parameters
    ----------
    name : str
        Name of the number of records, a variable of the model.
    prior : TensorVariable
        Its prior, an unregistered discrete distribution without mass below 1, e.g.
        ``pm.Poisson.dist(1000)`` or ``pm.DiscreteUniform.dist(1, 5000)``.
    n_max : int, optional
        Rows of the table, so many that the prior has no mass above. Found from the prior by
        default.

    Returns
    -------
    TensorVariable
        Ones for rows that are there and zeros for others, of shape (n_max,). Multiply what each
        record adds by it; its sum is the number of records.

    Notes
    -----
    In a model of records the number is sampled together with them, and rows that are not there
    follow their prior. :func:`~pymc_dp.marginalize` leaves the number itself, as a continuous
    variable: sums over integers and integrals of a smooth function agree to exp(-2 pi^2 sd^2), sd
    the posterior standard deviation of the number. Where the two differ, since there are few
    values, little noise on the count, or mass at an end of the prior, the number stays an integer.

    References
    ----------
    Awan, Barrientos & Ju (2024), arXiv 2406.06231, sample the same posterior by reversible jumps.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     there = pmdp.unknown_size("n", pm.DiscreteUniform.dist(1, 2000))
    ...     x = pm.Normal("x", mu, 1, shape=2000)
    ...     count = pmdp.Privatized(
    ...         "count", there.sum(), pmdp.DiscreteLaplace(scale=5), observed=1003
    ...     )
    ...     total = (there * pmdp.clamp(x, -5, 5)).sum()
    ...     total = pmdp.Privatized("total", total, pmdp.Laplace(scale=20), observed=2110.0)
    >>> sorted(rv.name for rv in pmdp.marginalize(model).free_RVs)
    ['mu', 'n']
    """
    model = pm.modelcontext(None)
    prior = pt.as_tensor_variable(prior)
    if prior.owner is None or not isinstance(prior.owner.op, RNGConsumerOp):
        raise TypeError(
            f"The prior of {name!r} is {prior}: write an unregistered distribution, e.g. "
            "pm.Poisson.dist(1000)."
        )
    if prior.dtype not in discrete_types or prior.type.ndim != 0:
        raise ValueError(
            f"The prior of {name!r} must be one whole number, e.g. pm.Poisson.dist(1000); it has "
            f"type {prior.dtype} and {prior.type.ndim} dimensions."
        )
    n_max = _checked_support(name, prior, n_max, model)
    number = model.register_rv(prior, name)
    inner = number.type()
    op = Presence([inner], [(pt.arange(n_max) < inner).astype("int64")])
    there: Any = op(number)
    return pt.specify_shape(there, (n_max,))


def _checked_support(name: str, prior: Any, n_max: int | None, model: pm.Model) -> int:
    """Insist on no mass below 1 or above n_max, where that can be told; find n_max."""
    if direct_inputs([prior], model.basic_RVs):
        if n_max is None:
            raise ValueError(
                f"The prior of {name!r} has parameters that are latent: say with n_max= how many "
                "records there may be at most."
            )
        return int(n_max)
    below = _mass_below(prior, 0)
    if below > _NOTHING:
        raise ValueError(
            f"The prior of {name!r} has mass {below:.2g} below 1, and without a record nothing "
            "would have been released: write one that starts at 1, e.g. "
            "pm.DiscreteUniform.dist(1, 5000)."
        )
    if n_max is None:
        n_max = 1
        while 1 - _mass_below(prior, n_max) > _NOTHING:
            n_max *= 2
        low = n_max // 2
        while n_max - low > 1:
            middle = (low + n_max) // 2
            enough = 1 - _mass_below(prior, middle) <= _NOTHING
            low, n_max = (low, middle) if enough else (middle, n_max)
    above = 1 - _mass_below(prior, n_max)
    if above > 10 * _NOTHING:
        raise ValueError(
            f"The prior of {name!r} has mass {above:.2g} above n_max={n_max}: write more rows, or "
            "a prior that ends there."
        )
    return int(n_max)


def _mass_below(prior: Any, value: int) -> float:
    """Prior probability of a value or less."""
    logcdf = pm.logcdf(prior, np.int64(value), warn_rvs=False)
    return float(np.exp(logcdf.eval(mode=ONCE)))


def presences(outputs: Sequence[Variable], stop_at: Sequence[Variable]) -> list[Variable]:
    """Variables that say which rows are there, of which some quantities are computed."""
    blockers = set(stop_at)
    return [
        var
        for var in ancestors(outputs, blockers=blockers)
        if var.owner is not None and var not in blockers and isinstance(var.owner.op, Presence)
    ]
