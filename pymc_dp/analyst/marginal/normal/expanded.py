"""Strategy: sums of records of many dimensions are normal, with moments expanded about a centre."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.normal.convolved import gaussian_variance
from pymc_dp.analyst.marginal.normal.expansion import Expansion, SimulatedRecords, why_not_simulated
from pymc_dp.analyst.marginal.normal.second_order import SecondOrder
from pymc_dp.analyst.marginal.strategy import Integrated, MarginalRV, Replacement
from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.records import RecordBlock
from pymc_dp.analyst.unknown_size import presences
from pymc_dp.compat import logprob_rules, support_point_rules
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import without_checks
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["Expanded", "ExpandedReleaseRV"]

_ENOUGH = 0.1  # error of a sum's mean, in its standard deviations, that is not worth a word
_AIM = 0.02  # the error that is aimed at
_MOST = 200  # rounds of simulation
_LEAST = 200_000  # simulated records, of which slopes are known to a hundredth or two
_CENTRES = 6  # that are tried


class ExpandedReleaseRV(MarginalRV):
    """A release that is normal with a given mean and a constant covariance."""

    def __init__(self, *args: Any, factor: Matrix, **kwargs: Any) -> None:
        self.factor = factor
        super().__init__(*args, **kwargs)

    @classmethod
    def rv_op(
        cls, mean: Variable, covariance: Matrix, shape: tuple[int, ...], what: Integrated
    ) -> TensorVariable:
        """Make the variable."""
        factor = np.linalg.cholesky(covariance)
        inner, rng = mean.type(), random_generator_type()
        rng_next, z = pt.random.normal(size=(len(factor),), rng=rng, return_next_rng=True)
        axes = ",".join(f"r{axis}" for axis in range(len(shape)))
        op = cls(
            [rng, inner],
            [rng_next, (inner + factor @ z).reshape(shape)],
            factor=factor,
            integrated=what,
            extended_signature=f"[rng],(d)->[rng],({axes})",
        )
        return op.make_node(pytensor.shared(np.random.default_rng()), mean).outputs[1]


@logprob_rules.register(ExpandedReleaseRV)
def _expanded_logprob(op: ExpandedReleaseRV, values: Any, *inputs: Any, **kwargs: Any) -> Variable:
    [value] = values
    inverse = np.linalg.inv(op.factor)
    z = inverse @ (value.ravel() - inputs[1])
    constant = np.log(np.diag(op.factor)).sum() + len(op.factor) / 2 * np.log(2 * np.pi)
    return -0.5 * pt.sqr(z).sum() - constant


@support_point_rules.register(ExpandedReleaseRV)
def _expanded_support_point(op: ExpandedReleaseRV, rv: Any, rng: Any, mean: Any) -> Variable:
    return mean.reshape(rv.shape)


class Expanded:
    """Strategy: simulate records near the posterior, and expand the moments of sums there."""

    name = "expanded"

    def refusal(self, model: pm.Model, block: RecordBlock) -> str | None:
        """Say what keeps the sums from having a normal law that is known."""
        if presences(block.contributions, model.basic_RVs):
            return f"the number of records of {block.names} is not known."
        if len(block.releases) != 1:
            return f"there must be one release of {block.names}, not {len(block.releases)}."
        if block.factors:
            names = ", ".join(map(repr, block.factors))
            return f"{names} tells about every record by itself, not about sums."
        [release] = block.releases
        if gaussian_variance(release.mechanism) is None or block.totals != [release.statistic]:
            return f"{release.mechanism!r} of {release.name!r} is no Gaussian noise on sums."
        if model.rvs_to_values[release.rv] in model.value_vars:
            return f"{release.name!r} has no released value, near which to simulate."
        reason = why_not_simulated(model, block)
        return None if reason is None else f"records cannot be simulated: {reason}"

    def preferred(self, model: pm.Model, block: RecordBlock) -> bool:
        """Prefer it to nothing."""
        return True

    def integrate(self, model: pm.Model, block: RecordBlock) -> Replacement:
        """Expand about the posterior's mode, which is found by expanding about others."""
        [release] = block.releases
        simulated = SimulatedRecords(model, block)
        shape = concrete_shape(release.statistic)
        noise: Any = gaussian_variance(release.mechanism)
        variance = np.broadcast_to(noise, shape).ravel()
        posterior = _Posterior(model, block, simulated, np.diag(variance))
        found = posterior.centred()
        n = simulated.n
        how = (
            "sums are normal, with moments expanded about the mode of "
            f"{'all values' if simulated.exact else 'simulated records'}"
        )
        what = Integrated(self.name, tuple(str(rv.name) for rv in block.records), n, how)
        values = [_unconstrained(model, name).ravel() for name in simulated.layout.shapes]
        delta = pt.concatenate(values) - found.centre
        mean: Any = SecondOrder()(delta, *found.form)
        covariance = n * found.covariance + np.diag(variance)
        new = ExpandedReleaseRV.rv_op(n * mean, covariance, shape, what)
        return Replacement(block.records, {release.rv: new})


def _unconstrained(model: pm.Model, name: str) -> Variable:
    """Unconstrained value of a variable, as a graph of the variable itself."""
    [rv] = [rv for rv in model.free_RVs if model.rvs_to_values[rv].name == name]
    transform = model.rvs_to_transforms[rv]
    value: Variable = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
    return value.astype("float64")


class _Posterior:
    """Posterior by the expansion about some centre, to find the next one."""

    def __init__(
        self, model: pm.Model, block: RecordBlock, simulated: SimulatedRecords, noise: Matrix
    ) -> None:
        self.simulated, self.noise = simulated, noise
        [release] = block.releases
        value = model.rvs_to_values[release.rv]
        self.released = np.asarray(value.eval(mode=ONCE), dtype=float).ravel()
        layout = simulated.layout
        point = model.initial_point()
        self.start = np.concatenate([np.ravel(point[name]).astype(float) for name in layout.shapes])
        parameters = [rv for rv in model.free_RVs if rv not in block.records]
        prior = model.logp(vars=[*parameters, *model.potentials], jacobian=True)
        theta = pt.dvector("theta")
        swap = {
            value: layout.piece(theta, str(value.name)).astype(value.dtype)
            for value in model.value_vars
            if str(value.name) in layout.shapes
        }
        prior = pytensor.graph.replace.graph_replace([prior], swap, strict=False)[0]
        prior = without_checks(prior)  # a scale that underflows on the way is no error
        gradient = pt.grad(prior, theta, disconnected_inputs="ignore")
        self._prior = pm.compile([theta], [prior, gradient])

    def centred(self) -> Expansion:
        """Expand about the mode."""
        centre = self.start
        for _ in range(_CENTRES):
            found = self.simulated.expand(centre, 1, self.noise)
            new, sds = self._mode(found)
            # not further than a record would notice
            step = np.clip(new - centre, -0.7 * sds * np.sqrt(self.simulated.n), None)
            new = centre + np.clip(step, None, 0.7 * sds * np.sqrt(self.simulated.n))
            off = float(np.max(np.abs(new - centre) / sds))
            centre = new
            if off < 1.0:
                break
        many = self._rounds(found)
        found = self.simulated.expand(centre, many, self.noise)
        if found.error > _ENOUGH:
            warnings.warn(
                f"The mean of a sum is known to {found.error:.2g} of its standard deviations from "
                f"simulated records, of which {self.simulated.n} would need more.",
                stacklevel=5,
            )
        return found

    def _rounds(self, found: Expansion) -> int:
        """Choose rounds of simulation that make the error small, if so many are allowed."""
        least = -(-_LEAST // self.simulated.rows)
        return int(np.clip(np.ceil((found.error / _AIM) ** 2), min(least, _MOST), _MOST))

    def _mode(self, found: Expansion) -> tuple[Vector, Vector]:
        """Mode, and standard deviations there."""
        n = self.simulated.n
        precision = np.linalg.inv(n * found.covariance + self.noise)

        def surprise(theta: Vector) -> tuple[float, Vector]:
            delta = theta - found.centre
            left = self.released - n * found.at(delta)
            slope = found.slope_at(delta)
            prior, gradient = self._prior(theta)
            if not np.isfinite(prior) or not np.isfinite(gradient).all():
                return 1e300, np.zeros_like(theta)
            pull = n * slope.T @ (precision @ left)
            return float(0.5 * left @ precision @ left - prior), -pull - gradient

        with np.errstate(all="ignore"):
            best = scipy.optimize.minimize(surprise, found.centre, jac=True, method="BFGS")
        told = n**2 * found.slope.T @ precision @ found.slope
        step = 1e-4
        prior = np.array(
            [
                (self._prior(best.x + step * e)[1] - self._prior(best.x - step * e)[1]) / (2 * step)
                for e in np.eye(best.x.size)
            ]
        )
        hessian = told - 0.5 * (prior + prior.T)
        values, vectors = np.linalg.eigh(hessian)
        values = np.maximum(np.abs(values), 1e-12 * np.abs(values).max())
        return best.x, np.sqrt(np.diag((vectors / values) @ vectors.T))
