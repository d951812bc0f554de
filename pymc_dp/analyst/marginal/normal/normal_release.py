"""Random variables of releases whose totals are jointly normal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.random.basic import ExponentialRV
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.normal.convolved import convolved_logp, normal_logp
from pymc_dp.analyst.marginal.strategy import AuxiliaryRV, Integrated, MarginalRV
from pymc_dp.compat import logprob_rules, support_point_rules
from pymc_dp.mechanisms import Mechanism
from pymc_dp.types import Variable

__all__ = [
    "Background",
    "MixingRV",
    "NormalReleaseRV",
    "StandardTotalsRV",
    "eliminated",
    "square",
]

#: totals up to so many are eliminated one by one, in one fused loop
UNROLLED = 6


class Background(NamedTuple):
    """All that is known of a block's totals, for those who ask how good the normal law is.

    Attributes
    ----------
    mean, covariance : TensorVariable, shapes (totals,), (totals, totals)
        Of all totals together, in the order of the chain, with their noise.
    earlier : TensorVariable
        Released values, or latent totals, before this release.
    columns : TensorVariable, shape (rows, totals)
        What records add, on rows that stand for them.
    weights : TensorVariable, shape (rows,)
        Weights of the rows, which sum to one for every kind of record.
    counts : TensorVariable, shape (kinds,)
        Number of records of each kind.
    finer_mean : TensorVariable, shape (totals,)
        The mean by more nodes.
    """

    mean: Variable
    covariance: Variable
    earlier: Variable
    columns: Variable
    weights: Variable
    counts: Variable
    finer_mean: Variable


def square(covariance: Sequence[Sequence[Variable]]) -> Variable:
    """Write a lower triangle as a matrix."""
    d = range(len(covariance))
    return pt.stack([pt.stack([covariance[max(i, j)][min(i, j)] for j in d]) for i in d])


class NormalReleaseRV(MarginalRV):
    """A release of totals that are normal given the parameters and earlier releases.

    Inputs, after the generator: mean and covariance of the totals, the noise that is normal
    included; then what only diagnostics read (see :class:`Background`), in the block's last one.
    `last` is the noise of the last component where it is of another kind, None elsewhere.
    """

    def __init__(self, *args: Any, last: Mechanism | None, **kwargs: Any) -> None:
        self.last = last
        super().__init__(*args, **kwargs)

    @staticmethod
    def background(rv: Any) -> Background | None:
        """Read what a variable says about its whole block."""
        inputs = rv.owner.inputs[3:]
        return Background(*inputs) if inputs else None

    @classmethod
    def rv_op(
        cls,
        mean: Sequence[Variable],
        covariance: Sequence[Sequence[Variable]],
        shape: tuple[int, ...],
        dtype: str,
        last: Mechanism | None,
        integrated: Integrated,
        background: Background | None = None,
    ) -> TensorVariable:
        """Make the variable, of means and the lower triangle of covariances."""
        d = len(mean)
        if d == 1 and not shape:
            given = [mean[0], covariance[0][0]]
            signature = "[rng],(),()", "()"
        else:
            given = [pt.stack(list(mean)), square(covariance)]
            axes = ",".join(f"r{axis}" for axis in range(len(shape)))
            signature = "[rng],(d),(d,d)", f"({axes})"
        more = "" if background is None else ",(t),(t,t),(e),(rows,t),(rows),(kinds),(t)"
        given += [] if background is None else list(background)
        given = [part.astype("float64") for part in given]
        inner = [random_generator_type(), *(part.type() for part in given)]
        rng, value = _drawn(inner[0], inner[1], inner[2], last)
        value = value.reshape(shape) if shape else value
        if np.dtype(dtype).kind == "i":
            value = pt.round(value.astype("float64"))
        op = cls(
            inner,
            [rng, value.astype(dtype)],
            last=last,
            integrated=integrated,
            extended_signature=f"{signature[0]}{more}->[rng],{signature[1]}",
        )
        return op.make_node(pytensor.shared(np.random.default_rng()), *given).outputs[1]


class StandardTotalsRV(AuxiliaryRV, NormalReleaseRV):
    """Latent totals, standardised, of a release that has no law of its own without them."""

    @classmethod
    def of(cls, number: int, what: Integrated) -> TensorVariable:
        """Make so many."""
        zeros = [pt.constant(0.0)] * number
        unit = [[pt.constant(float(i == j)) for j in range(i + 1)] for i in range(number)]
        return cls.rv_op(zeros, unit, (number,), "float64", None, what)


class MixingRV(AuxiliaryRV, ExponentialRV):
    """Exponential w of mean 2: Laplace noise of scale b is Gaussian with variance b^2 w."""

    @classmethod
    def of(cls, number: int) -> Any:
        """Make so many."""
        rng = pytensor.shared(np.random.default_rng())
        return cls()(2.0, size=(number,), rng=rng, return_next_rng=True)[1]


def _drawn(rng: Any, mean: Any, covariance: Any, last: Mechanism | None) -> tuple[Any, Any]:
    if mean.type.ndim == 0:
        sd = pt.sqrt(covariance)
        rng, value = pt.random.normal(mean, sd, rng=rng, return_next_rng=True)
        return (rng, value) if last is None else last.draw(value, rng)
    d = mean.type.shape[0]
    rng, z = pt.random.normal(size=(d,), rng=rng, return_next_rng=True)
    # totals without spread, of ones for instance, have a covariance that is singular
    tiny = 1e-14 * pt.diag(pt.maximum(pt.diagonal(covariance), 1e-280))
    value = mean + pt.linalg.cholesky(covariance + tiny) @ z
    if last is None:
        return rng, value
    rng, end = last.draw(value[-1], rng)
    return rng, pt.concatenate([value[:-1], end[None].astype("float64")])


def eliminated(
    mean: Sequence[Variable], covariance: Sequence[Sequence[Variable]], values: Sequence[Variable]
) -> tuple[list[Variable], list[list[Variable]]]:
    """Mean and covariance of what is left, given values of the first ones; one by one."""
    left = list(mean), [list(row) for row in covariance]
    for value in values:
        mean, covariance = left
        error, variance = value - mean[0], covariance[0][0]
        gain = [row[0] / variance for row in covariance[1:]]
        means = [m + g * error for m, g in zip(mean[1:], gain, strict=True)]
        covariances = [
            [covariance[i + 1][j + 1] - gain[i] * covariance[j + 1][0] for j in range(i + 1)]
            for i in range(len(gain))
        ]
        left = means, covariances
    return left


@logprob_rules.register(NormalReleaseRV)
def _logprob(
    op: NormalReleaseRV,
    values: Sequence[Any],
    rng: Any,
    mean: Any,
    covariance: Any,
    *background: Any,
    **_: Any,
) -> Any:
    value = values[0].astype("float64")
    if mean.type.ndim == 0:
        if op.last is None:
            return normal_logp(value - mean, covariance)
        return convolved_logp(op.last, value, mean, covariance)
    flat, d = value.ravel(), mean.type.shape[0]
    if d > UNROLLED:
        return _by_cholesky(op, flat, mean, covariance, d)
    means = [mean[i] for i in range(d)]
    rest = [[covariance[i, j] for j in range(i + 1)] for i in range(d)]
    total = 0.0
    for i in range(d):
        if i == d - 1 and op.last is not None:
            return total + convolved_logp(op.last, flat[i], means[0], rest[0][0])
        total = total + normal_logp(flat[i] - means[0], rest[0][0])
        means, rest = eliminated(means, rest, [flat[i]])
    return total


def _by_cholesky(op: NormalReleaseRV, flat: Any, mean: Any, covariance: Any, d: int) -> Any:
    factor = pt.linalg.cholesky(covariance)
    z = pt.linalg.solve_triangular(factor, flat - mean, lower=True)
    diagonal = pt.diagonal(factor)
    terms = -0.5 * z**2 - pt.log(diagonal) - 0.5 * np.log(2 * np.pi)
    if op.last is None:
        return terms.sum()
    # its own part of the last total: what the others leave open
    expected = mean[d - 1] + factor[d - 1, : d - 1] @ z[: d - 1]
    return terms[: d - 1].sum() + convolved_logp(op.last, flat[d - 1], expected, diagonal[-1] ** 2)


@logprob_rules.register(StandardTotalsRV)
def _standard_logprob(op: StandardTotalsRV, values: Sequence[Any], *_: Any, **__: Any) -> Any:
    z = values[0]
    return -0.5 * (z**2 + np.log(2 * np.pi)).sum()


@support_point_rules.register(NormalReleaseRV)
def _support_point(
    op: NormalReleaseRV, rv: Any, rng: Any, mean: Any, covariance: Any, *background: Any
) -> Any:
    value = mean if rv.type.ndim == 0 else mean.reshape(rv.shape)
    if op.last is not None:
        value = op.last.support_point(value)
    return value.astype(rv.dtype)
