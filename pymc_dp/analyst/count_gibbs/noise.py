"""What was released of cells, as arrays: numbers, noise, and its compiled log-density."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.count_gibbs.windows import Components
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.numerics.compiled import density_key, join, joined_key
from pymc_dp.types import Vector

__all__ = ["ReleasedComponents"]

_log = logging.getLogger(__name__)
#: values of a release that are not whole numbers by chance, or by someone's haste
_SEVERAL = 3

_LOG_NOISE = """
def log_noise(kind, released, statistic, noise):
{cases}
    return 0.0
"""
_EACH = """
def each(which, statistic, released, noise, kind, out):
    for i in range(out.size):
        r = which[i]
        out[i] = log_noise(kind[r], released[r], statistic[i], noise[r])
"""


def _current(value: Any) -> Any:
    """Value of what was released, as it is now."""
    return value.get_value() if isinstance(value, SharedVariable) else value.eval(mode=ONCE)


class ReleasedComponents:
    """Every released number of a table, side by side.

    Parameters
    ----------
    model : Model
        The model.
    table : CountTable
        Cells and releases.
    """

    def __init__(self, model: pm.Model, table: CountTable) -> None:
        self.table = table
        self.values: list[Any] = [model.rvs_to_values[release.rv] for release in table.releases]
        self.densities = tuple(dict.fromkeys(r.mechanism.log_density for r in table.releases))

    @property
    def key(self) -> str | None:
        """Name of the compiled densities, for the cache on disk."""
        names = [density_key(density) for density in self.densities]
        return None if None in names else str(names)

    @cached_property
    def log_noise(self) -> Callable[..., float]:
        """Compiled ``log_noise(kind, released, statistic, noise)`` of one component."""
        cases = "".join(
            f"    if kind == {i}:\n        return density_{i}(released, statistic, noise)\n"
            for i in range(len(self.densities))
        )
        names = {f"density_{i}": density for i, density in enumerate(self.densities)}
        key = joined_key([ReleasedComponents], self.key)
        compiled: Callable[..., float] = join(_LOG_NOISE.format(cases=cases), names, key)
        return compiled

    @cached_property
    def _each(self) -> Any:
        key = joined_key([ReleasedComponents], self.key, "each")
        return join(_EACH, {"log_noise": self.log_noise}, key)

    def components(self) -> Components:
        """Read the released values as they are now."""
        released, noise, kind = [], [], []
        for release, value, found in zip(
            self.table.releases, self.values, self.table.maps, strict=True
        ):
            current = _current(value)
            mechanism = release.mechanism
            checked = mechanism.checked_release(release.name, np.asarray(current), found.shape)
            released.append(np.ravel(checked).astype(float))
            noise.append(np.broadcast_to(mechanism.noise, found.shape).ravel())
            place = self.densities.index(mechanism.log_density)
            kind.append(np.full(released[-1].size, place, dtype=np.int64))
        return Components(
            np.concatenate(released), np.concatenate(noise), self.table.constant,
            np.concatenate(kind),
        )  # fmt: skip

    def tell_of_rounding(self) -> None:
        """Tell of real noise that gave whole numbers only, which it never does."""
        for release, value in zip(self.table.releases, self.values, strict=True):
            current = _current(value)
            mechanism = release.mechanism
            real = isinstance(mechanism, AdditiveNoise) and mechanism.lattice == 0
            if real and np.size(current) >= _SEVERAL and np.all(current == np.round(current)):
                _log.warning(
                    "All values of %r are whole numbers, which %r does not give. If they were "
                    "rounded, write .rounded() after it; if the noise was discrete, write "
                    "DiscreteGaussian or DiscreteLaplace.",
                    release.name,
                    mechanism,
                )

    def log_density(
        self, components: Components, which: NDArray[np.int64], statistic: Vector
    ) -> Vector:
        """Log-densities of components at statistics."""
        out = np.empty(len(statistic))
        self._each(
            which, np.asarray(statistic, float), components.released, components.noise,
            components.kind, out,
        )  # fmt: skip
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("log_noise", "_each")}
