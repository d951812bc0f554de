"""Sums over records by their normal law: T ~ N(n m, n V), noise and all integrated out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.strategy import Integrated, MarginalRV, Replacement
from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.compat import logprob_rules, support_point_rules
from pymc_dp.mechanisms import Gaussian

__all__ = ["Normal"]


class NormalSumRV(MarginalRV):
    """A released sum with normal law and Gaussian noise: inputs are its mean and variance."""

    @classmethod
    def rv_op(cls, mean: Any, variance: Any, integrated: Integrated) -> TensorVariable:
        """Make the variable."""
        inner = [random_generator_type(), mean.type(), variance.type()]
        drawn = pt.random.normal(inner[1], pt.sqrt(inner[2]), rng=inner[0], return_next_rng=True)
        op = cls(
            inner,
            list(drawn),
            integrated=integrated,
            extended_signature="[rng],(),()->[rng],()",
        )
        return op.make_node(pytensor.shared(np.random.default_rng()), mean, variance).outputs[1]


@logprob_rules.register(NormalSumRV)
def _logprob(op: Any, values: Sequence[Any], rng: Any, mean: Any, variance: Any, **_: Any) -> Any:
    return pm.logp(pm.Normal.dist(mean, pt.sqrt(variance)), values[0])


@support_point_rules.register(NormalSumRV)
def _support_point(op: Any, rv: Any, rng: Any, mean: Any, variance: Any) -> Any:
    return mean


class Normal:
    """Strategy: the released sums are normal, with the moments that the model gives them."""

    name = "normal"

    def refusal(self, model: pm.Model, block: RecordBlock) -> str | None:
        """Say what keeps the sums from having a normal law that is known."""
        [*releases] = block.releases
        if len(releases) != 1 or not isinstance(releases[0].mechanism, Gaussian):
            return "it takes one sum with Gaussian noise."
        [record] = block.records[:1]
        if block.contributions[0] is not record or not isinstance(record.owner.op, NormalRV):
            return f"it takes sums of normal records, and {record.name!r} is not summed as it is."
        return None

    def preferred(self, model: pm.Model, block: RecordBlock) -> bool:
        """Prefer it."""
        return True

    def integrate(self, model: pm.Model, block: RecordBlock) -> Replacement:
        """Build the release's own law."""
        [release], [record] = block.releases, block.records
        n = length_of(record)
        mu, sigma = record.owner.op.dist_params(record.owner)
        noise = np.float64(release.mechanism.noise)
        what = Integrated(self.name, (str(record.name),), n, "its sum is normal")
        new = NormalSumRV.rv_op(n * mu.sum(), n * (sigma**2).sum() + noise**2, what)
        return Replacement([record], {release.rv: new})
