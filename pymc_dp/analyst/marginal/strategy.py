"""What a way to integrate records out is, and what it leaves in the graph.

A strategy is one module with one object that has the members of :class:`Strategy`, listed in
``marginalize.STRATEGIES``. Both of its questions are answered from the model's graph:

- ``refusal(model, block)``: why it does not apply to a block of records, in a sentence that names
  the variable and says what to write instead, or None where it does;
- ``preferred(model, block)``: whether to take it without being asked for. The first strategy of the
  list that applies and is preferred is taken; one that is asked for by name need only apply.

``integrate(model, block)`` then builds a :class:`Replacement`: what goes, what stands in place of
each release, and what latent variables that takes. Its graphs are written in terms of the variables
of the model that was given, which they leave alone: :mod:`~pymc_dp.analyst.marginal.rebuild` moves
them into a copy. What stands in place of a release may depend on parameters, on new latents, and on
what stands in place of releases before it (``dict`` order), never on records.

The variable in place of a release is of a subclass of :class:`MarginalRV`, which tells the world
what was integrated out (:class:`Integrated`). The subclass has

- an inner graph that draws the release, so that prior and posterior predictive go on working;
- a log-density, registered with ``logprob_rules``, and a starting value (``support_point_rules``);
- as inputs, all that is computed of parameters, also what only diagnostics read: what the
  log-density does not use is not compiled into it. So a copy of the model knows as much as the
  model.

Where a release keeps its mechanism and only the totals behind it are new, the totals are such a
variable and the release is a ``PrivatizedRV`` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.records import RecordBlock
from pymc_dp.compat import SymbolicRandomVariable

__all__ = [
    "AuxiliaryRV",
    "Integrated",
    "MarginalRV",
    "Replacement",
    "Strategy",
    "auxiliary_variables",
    "integrated_out",
]


@dataclass(frozen=True)
class Integrated:
    """What was integrated out, and how.

    Attributes
    ----------
    method : str
        The strategy's name.
    records : tuple of str
        Variables that are gone.
    n : int or str
        How many records there were, or the name of the variable that tells.
    how : str
        For people, half a sentence: what stands in their place.
    """

    method: str
    records: tuple[str, ...]
    n: int | str
    how: str

    def __str__(self) -> str:
        if not self.records:
            return f"{self.n}: {self.how}"
        return f"{', '.join(self.records)} (n = {self.n}) by method {self.method!r}: {self.how}"


class MarginalRV(SymbolicRandomVariable):
    """Random variable of a release, or of totals behind one, without the records."""

    def __init__(self, *args: Any, integrated: Integrated, **kwargs: Any) -> None:
        self.integrated = integrated
        name = f"Marginal{integrated.method.capitalize()}"
        self._print_name = (name, f"\\operatorname{{{name}}}")
        super().__init__(*args, **kwargs)


class AuxiliaryRV:
    """Mixed into the variables that a strategy adds: results leave them out unless asked."""


@dataclass(frozen=True)
class Replacement:
    """What becomes of a part of a model.

    Attributes
    ----------
    removed : sequence of TensorVariable
        Latent variables of the model that are integrated out.
    releases : dict
        What stands in place of a release, or of another variable of the model.
    latents : dict
        New latent variables by name, parents first. Results of :func:`~pymc_dp.sample` leave those
        out that are an :class:`AuxiliaryRV`, as they do records.
    """

    removed: Sequence[TensorVariable]
    releases: dict[TensorVariable, TensorVariable]
    latents: dict[str, TensorVariable] = field(default_factory=dict)


class Strategy(Protocol):
    """A way to integrate records out; see the top of this module."""

    #: what users ask for with ``method=``
    name: str

    def refusal(self, model: pm.Model, block: RecordBlock) -> str | None:
        """Say why it does not apply to a block of records; None where it does."""

    def preferred(self, model: pm.Model, block: RecordBlock) -> bool:
        """Whether to take it, where it applies, without being asked for."""

    def integrate(self, model: pm.Model, block: RecordBlock) -> Replacement:
        """Build what stands in place of the block's releases."""


def auxiliary_variables(model: pm.Model) -> list[TensorVariable]:
    """Latent variables that integrating records out has added."""
    return [rv for rv in model.free_RVs if isinstance(rv.owner.op, AuxiliaryRV)]


def integrated_out(model: pm.Model) -> dict[str, Integrated]:
    """Tell what was integrated out, by the variable in whose graph it is read."""
    return {
        str(rv.name): rv.owner.op.integrated
        for rv in model.basic_RVs
        if isinstance(getattr(rv.owner.op, "integrated", None), Integrated)
    }
