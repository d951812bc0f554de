"""Interweaving: move the parameters of records, the records' residuals held fixed.

Given the records, parameters hardly move when there are many records; given the parameters, the
records follow them closely when there is much noise. So the two hold each other under strong
privacy, and the plain sampler of Ju et al. (2022) slows down. In the coordinates (theta, u), with u
the residuals and x = x(theta, u), the posterior is

    p(theta) * noise(released | statistic(x(theta, u))),

in which theta moves freely. One Metropolis move there after every sweep removes the slowdown
(ancillarity-sufficiency interweaving: Yu & Meng 2011). The residuals' own law does not depend on
theta, so that neither their density nor a Jacobian enters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.pytensorf import compile as pm_compile
from pymc.step_methods.state import DataClassState, dataclass_state
from pymc.vartypes import continuous_types
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_dp.additivity import direct_inputs
from pymc_dp.records import RecordBlock, is_record
from pymc_dp.steps.residuals import Rule, rule_for

__all__ = ["Interweaving", "interweaving_plan"]

#: a joint random walk of more parameters than this would hardly move
MOST_PARAMETERS = 30


#: rules of the records that move, and the parameters they move with
Plan = tuple[dict[Any, Rule], list[Any]]


def interweaving_plan(model: pm.Model, block: RecordBlock) -> Plan | str:
    """Which records move with their residuals kept, and along with which parameters.

    Returns
    -------
    Plan or str
        The reason where there is none. Records without a rule stay where they are, and their
        density enters the ratio.
    """
    parents: dict[Any, list[Any]] = {
        rv: [
            parent
            for parent in direct_inputs(rv.owner.inputs, model.basic_RVs)
            if parent in model.free_RVs and not is_record(parent) and parent not in block.records
        ]
        for rv in block.records
    }
    rules: dict[Any, Rule] = {}
    unmoved: list[str] = []
    for rv in block.records:

        def moving(param: Any, rv: Any = rv) -> bool:
            return bool(set(direct_inputs([param], [*parents[rv], *rules])))

        rule = rule_for(rv, moving)
        if rule is not None and set(direct_inputs(rv.owner.inputs, [*parents[rv], *rules])):
            rules[rv] = rule
        elif rule is None and parents[rv]:
            unmoved.append(f"{rv.name!r} ({type(rv.owner.op).__name__.removesuffix('RV')})")
    parameters = list(dict.fromkeys(p for rv in rules for p in parents[rv]))
    if unmoved and not rules:
        return f"no rule to keep the residuals of {', '.join(unmoved)}"
    if not parameters:
        return "the records have no latent parameters"
    if any(p.dtype not in continuous_types for p in parameters):
        return "a parameter of the records is discrete"
    start = model.initial_point()
    size = sum(np.size(start[model.rvs_to_values[p].name]) for p in parameters)
    if size > MOST_PARAMETERS:
        return f"the records have {size} parameters, more than {MOST_PARAMETERS}"
    return rules, parameters


@dataclass_state
class RandomWalk(DataClassState):
    """Scale and covariance of a joint proposal, learned while tuning and frozen afterwards."""

    log_scale: float
    mean: NDArray[np.float64]
    cov: NDArray[np.float64]
    factor: NDArray[np.float64]
    count: int = 0

    @classmethod
    def start(cls, size: int) -> RandomWalk:
        """Begin small; nothing is known yet."""
        cov = 0.01 * np.eye(size)
        return cls(log_scale=0.0, mean=np.zeros(size), cov=cov, factor=np.linalg.cholesky(cov))

    def propose(self, theta: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw a symmetric proposal with the tails of a t distribution with two degrees.

        Posteriors from clamped records have long tails: beyond the clamp the release says little.
        """
        size = np.exp(self.log_scale) / np.sqrt(rng.standard_exponential())
        return theta + size * self.factor @ rng.standard_normal(theta.size)

    def learn(self, theta: NDArray[np.float64], accept: float) -> None:
        """Robbins-Monro on the scale, running moments for the covariance (Haario et al. 2001)."""
        self.count += 1
        self.log_scale += (accept - (0.44 if theta.size == 1 else 0.3)) / self.count**0.6
        weight = 2 / (self.count + 2)  # the later half counts most
        deviation = theta - self.mean
        self.mean = self.mean + weight * deviation
        self.cov = (1 - weight) * (self.cov + weight * np.outer(deviation, deviation))
        if self.count % 50 == 0:
            spread = np.trace(self.cov) / theta.size
            before = np.linalg.slogdet(self.factor)[1]
            self.factor = np.linalg.cholesky(self.cov + 1e-6 * spread * np.eye(theta.size))
            # the shape is new, the size stays as it was learned
            self.log_scale += (before - np.linalg.slogdet(self.factor)[1]) / theta.size


class Interweaving:
    """A Metropolis move of parameters with residuals kept, compiled."""

    def __init__(
        self,
        model: pm.Model,
        plan: Plan,
        compile_kwargs: dict[str, Any] | None,
    ) -> None:
        rules, parameters = plan
        start = model.initial_point()
        self.parameters = [str(model.rvs_to_values[p].name) for p in parameters]
        self.records = [str(model.rvs_to_values[rv].name) for rv in rules]
        self.shapes = [np.shape(start[name]) for name in self.parameters]
        self.size = sum(int(np.prod(shape)) for shape in self.shapes)
        self._compile(model, rules, parameters, compile_kwargs or {})

    def _compile(
        self, model: pm.Model, rules: dict[Any, Rule], parameters: list[Any], compile_kwargs: dict
    ) -> None:
        values = model.rvs_to_values
        proposed = [values[p].type() for p in parameters]
        #: every value that moves, and where it goes
        goes_to: dict[Any, Any] = dict(zip((values[p] for p in parameters), proposed, strict=True))
        for rv, rule in rules.items():
            x, *old = model.replace_rvs_by_values([rv, *rv.owner.op.dist_params(rv.owner)])
            new = clone_replace(old, goes_to, rebuild_strict=False)
            moved = rule(x, old, new)
            transform = model.rvs_to_transforms.get(rv)
            if transform is not None:
                inputs = model.replace_rvs_by_values(
                    [i for i in rv.owner.inputs if hasattr(i.type, "dtype")]
                )
                kept = iter(clone_replace(inputs, goes_to, rebuild_strict=False))
                args = [next(kept) if hasattr(i.type, "dtype") else i for i in rv.owner.inputs]
                moved = transform.forward(moved, *args)
            goes_to[values[rv]] = moved.astype(values[rv].dtype)

        rest = [rv for rv in [*model.basic_RVs, *model.potentials] if rv not in rules]
        log_density = model.logp(vars=rest, jacobian=True)
        after = clone_replace(log_density, goes_to, rebuild_strict=False)
        outputs = [after - log_density, *(goes_to[values[rv]] for rv in rules)]
        inputs = [v for v in explicit_graph_inputs(outputs) if v not in proposed]
        self.inputs = [str(v.name) for v in inputs]
        self.move = pm_compile(
            [*proposed, *inputs],
            outputs,
            random_seed=False,
            on_unused_input="ignore",
            **compile_kwargs,
        )
        self.move.trust_input = True

    def step(
        self, point: PointType, rng: np.random.Generator, walk: RandomWalk, tune: bool
    ) -> tuple[PointType, float]:
        """Offer the parameters one joint move: the new point and the acceptance probability."""
        theta = np.concatenate([np.ravel(point[name]) for name in self.parameters])
        proposal = walk.propose(theta, rng)
        proposed = self._split(proposal)
        log_ratio, *records = self.move(*proposed.values(), *(point[name] for name in self.inputs))
        accept = float(np.exp(min(0.0, float(log_ratio)))) if np.isfinite(log_ratio) else 0.0
        if rng.random() < accept:
            point = {**point, **proposed, **dict(zip(self.records, records, strict=True))}
            theta = proposal
        if tune:
            walk.learn(theta, accept)
        return point, accept

    def _split(self, theta: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        parts = np.split(theta, np.cumsum(sizes)[:-1])
        named = zip(self.parameters, parts, self.shapes, strict=True)
        return {name: part.reshape(shape) for name, part, shape in named}
