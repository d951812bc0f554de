"""Records are sampled and integrated out in double precision alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["check_double"]


def check_double(variables: Iterable[Any]) -> None:
    """Refuse variables in single precision, which has seven digits: fewer than a sum of records.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.analyst.precision import check_double
    >>> check_double([pt.dscalar("mu")])
    >>> check_double([pt.fscalar("mu")])
    Traceback (most recent call last):
    ...
    NotImplementedError: 'mu' is in single precision (float32), ...
    """
    single = [var for var in variables if getattr(var, "dtype", "") in ("float16", "float32")]
    if single:
        raise NotImplementedError(
            f"{single[0].name!r} is in single precision ({single[0].dtype}), and records are "
            "sampled and integrated out in double precision: build the model under "
            'pytensor.config.floatX = "float64", which is the default.'
        )
