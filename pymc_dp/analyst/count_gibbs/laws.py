r"""Laws of counts in one form, with which cells are summed out, drawn and moved.

.. math:: \log p(k) = k\varphi - \log k! + \log\Gamma(k + \alpha) - \log(m - k)!
          + \log\Gamma(m - k + \beta) + \zeta\,[k = 0] + \text{constant}

from `low` to `high`, each term where the family has it. Poisson cells have :math:`\varphi` alone,
binomial ones :math:`\varphi` and m, negative binomial ones :math:`\varphi` and :math:`\alpha`,
beta-binomial ones :math:`m, \alpha, \beta`; zero-inflated and hurdle ones :math:`\zeta` too.
Truncation changes the bounds. Cells of a multinomial variable are such cells with a known sum.
Cells that a public 0 for a rate, probability or number of trials leaves no choice (structural
zeros) have equal bounds and no part in any density.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import DiracDeltaRV
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.distributions.truncated import TruncatedRV
from pytensor.tensor.random import basic as rvs

from pymc_dp.analyst.count_gibbs.guards import Guarded, guarded
from pymc_dp.analyst.count_gibbs.tables import RecordCountsRV
from pymc_dp.compat import HurdleRV
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE

__all__ = ["ALPHA", "BETA", "NO_TERM", "PHI", "TERMS", "UNBOUNDED", "ZERO", "CellLaw", "law_of"]

#: alpha and beta of cells that have none
NO_TERM = -1.0
#: terms in their order in arrays, and what stands for none
TERMS = {"phi": 0.0, "alpha": NO_TERM, "beta": NO_TERM, "zero": 0.0}
PHI, ALPHA, BETA, ZERO = range(4)

#: stands for no upper bound
UNBOUNDED = 2**62


@dataclass(frozen=True)
class CellLaw:
    """Law of the cells of one variable; see the module.

    Attributes
    ----------
    phi, alpha, beta, zero : TensorVariable or None
        The terms above, in the variable's shape or such that they broadcast to it.
    mean : TensorVariable
        About what is expected of a cell; moves follow it, nothing else depends on it.
    trials : ndarray or None
        m; for cells with a known sum that sum.
    low, high : ndarray
        Bounds of the counts.
    known_sum : bool
        Whether entries along the last axis sum to `trials`.
    settled : ndarray of bool
        Cells whose parameters leave them no choice; broadcasts to the variable.
    replaced : dict
        Parameters of the variable, and what takes their place in PyMC's density of it: the same
        values where they play a part, with slopes that are numbers.
    """

    phi: Any
    mean: Any
    alpha: Any = None
    beta: Any = None
    zero: Any = None
    trials: NDArray[np.int64] | None = None
    low: Any = 0
    high: Any = UNBOUNDED
    known_sum: bool = False
    settled: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((), dtype=bool))
    replaced: dict[Any, Any] = field(default_factory=dict)

    def guarded(self, rv: Any) -> Any:
        """Give the variable guarded parameters: densities are taken of that."""
        return _with_inputs(rv, self.replaced)

    @property
    def totals(self) -> NDArray[np.int64]:
        """Known sums along the last axis."""
        assert self.trials is not None
        return self.trials


def law_of(rv: Any, random: Sequence[Any]) -> CellLaw | None:
    """Law of a variable's entries as a graph of its parameters; None for other families.

    `random` are the model's variables: bounds and numbers of trials must not depend on them.
    """
    op, inputs = rv.owner.op, list(rv.owner.inputs)
    try:
        found = _RULES.get(type(op), _none)(op, inputs, random)
    except _NotPublicError:
        return None
    if found is None or found.zero is None:
        return found
    return replace(found, zero=_zero_term(rv, found))


def _with_inputs(rv: Any, replaced: dict[Any, Any]) -> Any:
    """Give a variable other parameters; those of a mixture are its components'."""
    if rv.owner is None or not replaced:
        return rv
    known = [replaced.get(var) for var in rv.owner.inputs]
    if all(var is None for var in known):
        if not isinstance(rv.owner.op, MixtureRV | HurdleRV):
            return rv
        known = [_with_inputs(var, replaced) for var in rv.owner.inputs]
    inputs = [var if new is None else new for var, new in zip(rv.owner.inputs, known, strict=True)]
    return rv.owner.clone_with_new_inputs(inputs, strict=False).outputs[-1]


def _none(op: Any, inputs: list[Any], random: Sequence[Any]) -> None:
    return None


class _NotPublicError(ValueError):
    """A bound is random."""


def _public(var: Any, random: Sequence[Any]) -> NDArray:
    if direct_inputs([var], random):
        raise _NotPublicError
    return np.asarray(var.eval(mode=ONCE))


def _whole(value: NDArray) -> NDArray[np.int64]:
    if np.issubdtype(value.dtype, np.integer):
        return value.astype(np.int64)
    return np.clip(np.asarray(value, dtype=float), -UNBOUNDED, UNBOUNDED).astype(np.int64)


def _real(var: Any) -> Any:
    """Take small constants, which may be single precision, in double."""
    return var.astype("float64")


def _settle(law: CellLaw, parameter: Guarded, settled: Any, count: Any = 0) -> CellLaw:
    """Leave cells out of the law to which a parameter leaves one count."""
    law = replace(law, replaced=parameter.replaced(settled))
    if not np.any(settled):
        return law
    return replace(
        law,
        phi=pt.switch(settled, 0.0, law.phi),
        mean=pt.switch(settled, count, law.mean),
        low=np.where(settled, count, law.low),
        high=np.where(settled, count, law.high),
        settled=settled,
    )


def _poisson(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    rate = guarded(inputs[-1], random)
    law = CellLaw(phi=rate.log(), mean=rate.value)
    return _settle(law, rate, rate.zero)


def _binomial(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    n = inputs[-2]
    p = guarded(inputs[-1], random, one=True)
    trials = _whole(_public(n, random))
    law = CellLaw(phi=p.log() - p.log_rest(), mean=trials * p.value, trials=trials, high=trials)
    return _settle(law, p, p.zero | p.one, np.where(p.one, trials, 0))


def _negative_binomial(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    n, p = inputs[-2], guarded(inputs[-1], random, zero=False, one=True)
    law = CellLaw(phi=p.log_rest(), mean=n * (1 - p.value) / p.value, alpha=n)
    return _settle(law, p, p.one)


def _geometric(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    p = guarded(inputs[-1], random, zero=False, one=True)
    law = CellLaw(phi=p.log_rest(), mean=1 / p.value, alpha=pt.constant(1.0), low=1)
    return _settle(law, p, p.one, 1)


def _discrete_uniform(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw | None:
    low, high = (_whole(_public(bound, random)) for bound in inputs[-2:])
    if np.any(low < 0):
        return None
    mean = pt.constant((low + high) / 2.0)
    return CellLaw(phi=pt.constant(0.0), mean=mean, alpha=pt.constant(1.0), low=low, high=high)


def _beta_binomial(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    n, alpha, beta = inputs[-3:]
    trials = _whole(_public(n, random))
    return CellLaw(
        phi=pt.constant(0.0),
        mean=trials * alpha / (alpha + beta),
        alpha=alpha,
        beta=beta,
        trials=trials,
        high=trials,
    )


def _multinomial(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    n, p = inputs[-2], guarded(inputs[-1], random)
    trials = _whole(_public(n, random))
    whole = trials[..., None]
    law = CellLaw(phi=p.log(), mean=whole * p.value, trials=trials, high=whole, known_sum=True)
    return replace(_settle(law, p, p.zero), replaced=p.replaced())


def _dirichlet_multinomial(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw:
    n, alpha = inputs[-2:]
    trials = _whole(_public(n, random))
    whole = trials[..., None]
    return CellLaw(
        phi=pt.constant(0.0),
        mean=whole * alpha / alpha.sum(axis=-1, keepdims=True),
        alpha=alpha,
        trials=trials,
        high=whole,
        known_sum=True,
    )


def _truncated(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw | None:
    *inner, lower, upper = inputs
    found = _RULES.get(type(op.base_rv_op), _none)(op.base_rv_op, inner, random)
    if found is None or found.known_sum or found.zero is not None:
        return None
    low, high = _public(lower, random), _public(upper, random)
    return replace(
        found,
        low=np.maximum(found.low, _whole(np.ceil(low))),
        high=np.minimum(found.high, _whole(np.floor(high))),
    )


def _with_zeros(op: Any, inputs: list[Any], random: Sequence[Any]) -> CellLaw | None:
    """Zero-inflated and hurdle variables: a mixture of zero and of counts."""
    if len(inputs) != 4:  # a generator, weights, two components
        return None
    dirac, counts = inputs[2:]
    if not isinstance(getattr(dirac.owner, "op", None), DiracDeltaRV) or counts.owner is None:
        return None
    if np.any(_public(dirac.owner.inputs[-1], random) != 0):
        return None
    rule = _RULES.get(type(counts.owner.op), _none)
    found = rule(counts.owner.op, list(counts.owner.inputs), random)
    if found is None or found.known_sum or found.zero is not None:
        return None
    empty = found.settled & (np.asarray(found.high) == 0)
    if np.any((found.high < 1) & ~empty) or np.any(np.asarray(found.low) > 1):
        return None
    if np.any(empty) and isinstance(op, HurdleRV):  # counts that are not 0 are impossible there
        return None
    return replace(found, zero=True, low=0)


def _zero_term(rv: Any, law: CellLaw) -> Any:
    """How much likelier zero is than the other terms say, from PyMC's own density at 0 and 1."""
    ones, of = pt.ones(rv.shape, dtype=rv.dtype), law.guarded(rv)
    odds = pm.logp(of, pt.zeros_like(ones), warn_rvs=False) - pm.logp(of, ones, warn_rvs=False)
    odds += law.phi
    if law.alpha is not None:
        odds += pt.log(law.alpha)
    if law.trials is not None:
        odds += np.log(law.trials)
    if law.beta is not None:
        odds -= pt.log(law.totals - 1 + law.beta)
    return pt.switch(law.settled, 0.0, odds) if np.any(law.settled) else odds


_RULES: dict[type, Callable[..., CellLaw | None]] = {
    rvs.PoissonRV: _poisson,
    rvs.BinomialRV: _binomial,
    rvs.NegBinomialRV: _negative_binomial,
    rvs.GeometricRV: _geometric,
    pm.DiscreteUniform.rv_type: _discrete_uniform,
    rvs.BetaBinomialRV: _beta_binomial,
    rvs.MultinomialRV: _multinomial,
    RecordCountsRV: _multinomial,
    DirichletMultinomialRV: _dirichlet_multinomial,
    TruncatedRV: _truncated,
    MixtureRV: _with_zeros,
    HurdleRV: _with_zeros,
}
