"""Quantiles of counts, as an operation of PyTensor."""

from __future__ import annotations

from typing import Any

from pytensor.scalar.basic import ScalarOp, upgrade_to_float
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.compat import numba_njit, register_funcify_and_cache_key
from pymc_dp.numerics.compiled import source_key

__all__ = ["count_quantile"]


def _walk(u: float, x: float, cdf: float, pmf: float, a: float, b: float) -> float:
    """Smallest k with F(k) >= u, from F and the mass at x."""
    k = x
    while cdf < u:
        above = pmf * (a + b / (k + 1.0))
        if not above > 1e-17 * cdf:  # beyond what F can resolve, or the largest count there is
            return k
        k += 1.0
        pmf = above
        cdf += pmf
    while k > 0.0 and cdf - pmf >= u:
        if not pmf > 1e-17 * cdf or k > 2.0**53:  # k - 1 may be k
            return k
        cdf -= pmf
        pmf /= a + b / k
        k -= 1.0
    return k


class CountQuantile(ScalarOp):
    """Walk from a value to the quantile of a count.

    The value must be near the quantile: far out the mass underflows, and with it every next one.

    The family is Panjer's: masses follow p(k) = p(k - 1) (a + b / k). That is the Poisson
    distribution with a = 0, b = mu; the binomial with a = -p / (1 - p), b = -a (n + 1); the
    negative binomial with a = 1 - p, b = a (n - 1).
    """

    nin = 6

    def impl(self, *inputs: Any) -> float:
        """Compute in Python."""
        return _walk(*inputs)

    def c_code(self, *args: Any, **kwargs: Any) -> str:
        """Leave it to Python and numba."""
        raise NotImplementedError


@register_funcify_and_cache_key(CountQuantile)
def _funcify(op: CountQuantile, **kwargs: Any) -> tuple[Any, str]:
    return numba_njit(_walk), source_key(__name__)


#: ``count_quantile(u, x, cdf, pmf, a, b)``: `cdf` and `pmf` are those at x
count_quantile = Elemwise(CountQuantile(upgrade_to_float, name="count_quantile"))
