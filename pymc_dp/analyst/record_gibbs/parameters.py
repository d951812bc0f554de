"""Parameters of records: which of them RecordGibbs moves itself, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from pymc.vartypes import continuous_types

from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.record_gibbs.conjugate import (
    MOST_NORMAL,
    conjugate_family,
    possible_families,
)
from pymc_dp.analyst.record_gibbs.conjugate_draws import make_conjugate_draw
from pymc_dp.analyst.record_gibbs.places import arbitrary_points
from pymc_dp.analyst.records import is_parent
from pymc_dp.analyst.release import by_name
from pymc_dp.compat import jit_function
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import graph_key
from pymc_dp.numerics.cycles import Part
from pymc_dp.numerics.slice import make_slice

__all__ = ["ParameterUpdate", "describe_updates", "takes"]


#: parameters that are slice sampled one by one; NUTS is better at more of them together
MOST_SLICED = 8


def takes(model: pm.Model, rv: Any) -> bool:
    """Whether RecordGibbs moves a variable itself where nobody says otherwise.

    It takes continuous parameters of the records that are few or, by their prior, may have a
    conditional that can be drawn exactly.
    """
    if rv.dtype not in continuous_types or not is_parent(model, rv):
        return False
    size = int(np.prod(concrete_shape(rv)))
    families = possible_families(rv)
    if "normal" in families:
        return size <= MOST_NORMAL
    return bool(families) or size <= MOST_SLICED


def describe_updates(model: pm.Model, parameters: Sequence[Any]) -> dict[str, str]:
    """Tell how RecordGibbs moves parameters, for people."""
    point = model.initial_point() if parameters else {}
    places = arbitrary_points(model, point) if parameters else []
    described = {}
    for rv in parameters:
        layout = PointLayout(model, [rv], [], point, {"mode": "FAST_COMPILE"})
        found = conjugate_family(model, rv, children(model, rv), layout, point, places)
        how = "slice sampled" if found is None else f"drawn from its conditional ({found[0]})"
        described[str(rv.name)] = how
    return described


def children(model: pm.Model, rv: Any) -> list[Any]:
    """Variables and potentials of a model whose log-density moves with a variable.

    Besides those that use it directly: where the support of a record depends on it, as in
    ``pm.Uniform("x", 0, rv)``, steps hold the record's position in that support, so that the
    record moves along, and with it what uses the record.
    """
    found = [
        other
        for other in model.basic_RVs
        if other is not rv and rv in direct_inputs(other.owner.inputs, model.basic_RVs)
    ]
    along = []
    for other in found:
        transform = model.rvs_to_transforms.get(other)
        if transform is not None:
            natural = transform.backward(model.rvs_to_values[other], *other.owner.inputs)
            along += children(model, other) if rv in direct_inputs([natural], [rv]) else []
    found += [p for p in model.potentials if rv in direct_inputs([p], model.basic_RVs)]
    return by_name(dict.fromkeys([*found, *along]))


@dataclass(frozen=True)
class ParameterUpdate:
    """How one parameter of the records moves, given the records.

    Attributes
    ----------
    family : str or None
        Family of its conditional, from which it is then drawn; None where it is slice sampled.
    functions : tuple
        Compiled functions that the kernel needs.
    where : tuple of int
        Its first position in theta, and the one after the last.
    shape : tuple of int
        Its shape, unconstrained or not as the kernel needs it.
    """

    family: str | None
    functions: tuple[Any, ...]
    where: tuple[int, int]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, model: pm.Model, rv: Any, layout: PointLayout, point: Any) -> ParameterUpdate:
        """Find the update of a parameter and compile what it needs."""
        start, stop = layout.parameters.ends(str(model.rvs_to_values[rv].name))
        uses = children(model, rv)
        found = conjugate_family(model, rv, uses, layout, point)
        if found is not None:
            family, functions = found
            return cls(family, functions, (start, stop), concrete_shape(rv))
        logp = layout.on_arrays([model.logp(vars=[rv, *uses])])
        density = layout.compiled([layout.theta, layout.given, layout.table], logp)
        return cls(None, (density,), (start, stop), (stop - start,))

    def key(self) -> str | None:
        """Name of the compiled update, for the cache on disk."""
        key = graph_key(self.functions)
        return None if key is None else f"{self.family} {key} {self.where} {self.shape}"

    def part(self) -> Part:
        """Make the update, numba-compiled."""
        compiled = [jit_function(function) for function in self.functions]
        if self.family is None:
            return make_slice(compiled[0], self.where)
        return make_conjugate_draw(self.family, compiled, self.where, self.shape)
