"""The random variable behind a release, and how to find releases in a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.compat import SymbolicRandomVariable, logprob_rules, support_point_rules
from pymc_dp.mechanisms import Mechanism

__all__ = ["PrivatizedRV", "Release", "by_name", "releases"]


class PrivatizedRV(SymbolicRandomVariable):
    """Random variable of a released value: a mechanism applied to a statistic."""

    def __init__(self, *args: Any, mechanism: Mechanism, **kwargs: Any) -> None:
        self.mechanism = mechanism
        name = type(mechanism).__name__
        self._print_name = (f"Privatized{name}", f"\\operatorname{{Privatized{name}}}")
        super().__init__(*args, **kwargs)

    @classmethod
    def rv_op(cls, statistic: TensorVariable, mechanism: Mechanism) -> TensorVariable:
        """Apply a mechanism to a statistic."""
        inner_rng, inner_statistic = random_generator_type(), statistic.type()
        outputs = mechanism.draw(inner_statistic, inner_rng)
        core_in, core_out = "", ""
        if not mechanism.elementwise:
            core_in = ",".join(f"s{axis}" for axis in range(statistic.type.ndim))
            core_out = ",".join(f"r{axis}" for axis in range(outputs[1].type.ndim))
        signature = f"[rng],({core_in})->[rng],({core_out})"
        op = cls(
            [inner_rng, inner_statistic],
            list(outputs),
            mechanism=mechanism,
            extended_signature=signature,
        )
        rng = pytensor.shared(np.random.default_rng())
        return op.make_node(rng, statistic).outputs[1]


@logprob_rules.register(PrivatizedRV)
def _privatized_logprob(
    op: PrivatizedRV, values: Sequence[TensorVariable], *inputs: Any, **kwargs: Any
) -> TensorVariable:
    [value] = values
    return op.mechanism.logp(value, inputs[1])


@support_point_rules.register(PrivatizedRV)
def _privatized_support_point(
    op: PrivatizedRV, rv: TensorVariable, rng: Variable, statistic: TensorVariable
) -> TensorVariable:
    return op.mechanism.support_point(statistic)


@dataclass(frozen=True)
class Release:
    """A released value in a model."""

    rv: TensorVariable

    @property
    def name(self) -> str:
        """Name in the model."""
        return str(self.rv.name)

    @property
    def statistic(self) -> TensorVariable:
        """The statistic before noise."""
        return self.rv.owner.inputs[1]

    @property
    def mechanism(self) -> Mechanism:
        """The noise added to it."""
        return self.rv.owner.op.mechanism


def releases(model: pm.Model) -> list[Release]:
    """Return every release declared in a model, observed or not."""
    return [Release(rv) for rv in model.basic_RVs if isinstance(rv.owner.op, PrivatizedRV)]


def by_name(variables: Iterable[Any]) -> list[Any]:
    """Sort variables by name: an order that a copy of the model has too.

    PyMC's transforms of models change the order of declaration, and samplers that follow it would
    draw other numbers from the same seed.
    """
    return sorted(variables, key=lambda var: str(var.name))
