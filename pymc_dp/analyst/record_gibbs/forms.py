"""Whether a gradient has the form of a family, in any unit: looked at over many powers of ten.

A log-density is a sum, of a parameter's prior and of what uses the parameter. Each of these has
the form or none has it: they are looked at apart, each beside its own size at every point, so that
a steep one hides no other and no number is compared with one that has another unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMS", "has_form", "is_usable"]

#: powers of ten, of a parameter's own size, between which one point each is drawn: data that were
#: observed may have another size than the prior expects
_POWERS = (-12, -4, -1, 0, 1, 4, 12)
#: the same of odds, and of shares before they are divided by their sum; these have no unit, and
#: closer to the edge 1 - x would be rounded too much
_ODDS = (-6, -3, -1, 0, 1, 3, 6)
_SHARES = (-4, -3, -2, -1, 0)
#: by how much a gradient may miss the form beside its terms: that is rounding
_TOLERANCE = 1e-7


def has_form(
    family: str,
    slopes: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    size: NDArray[np.float64],
) -> bool:
    """Whether gradients have a family's form, at points beyond those that fix it.

    Parameters
    ----------
    family : str
        One of ``FORMS``.
    slopes : callable
        The gradients at flat parameters in their own space: a row for the prior and for each
        variable that uses the parameters, a column for each of these.
    size : ndarray
        The parameters at one point of the model, in their own shape: for parameters with a unit,
        they are looked at in multiples of this.

    Notes
    -----
    A last point is drawn from the conditional of this form, where that is proper: draws go there.
    """
    rng = np.random.default_rng(0)
    spread, terms, draw = FORMS[family]
    if not is_usable(size):
        return False
    unit = size.ravel() if spread is _positive else np.ones(size.size)
    points = spread(rng, size)
    found = np.array([slopes(unit * at) * unit for at in points])
    if not np.isfinite(found).all():
        return False
    columns = np.stack([term(points) for term in terms], axis=-1)[:, None]
    coefficients = _fixed_by_outermost(points, columns, found)
    if not _fits(coefficients, columns, found):
        return False
    with np.errstate(all="ignore"):
        at = draw(rng, coefficients.sum(axis=0).T, size.shape)
        if not (np.isfinite(at) & (at > 0)).all():
            return True  # no such law: the form alone was asked for
    column = np.stack([term(at) for term in terms], axis=-1)[None, None]
    return _fits(coefficients, column, (slopes(unit * at) * unit)[None])


def _fixed_by_outermost(points: Any, columns: Any, found: Any) -> Any:
    """Coefficients from as many of the outermost points as there are: one term rules at each."""
    outermost = np.argsort(points, axis=0)[[0, -1][: columns.shape[-1]], None]
    systems = np.take_along_axis(columns, outermost[..., None], axis=0)
    sides = np.take_along_axis(found, outermost, axis=0)
    largest = systems.max(axis=-1)
    systems = np.moveaxis(systems / largest[..., None], 0, -2)
    return np.linalg.solve(systems, np.moveaxis(sides / largest, 0, -1)[..., None])[..., 0]


def _fits(coefficients: Any, columns: Any, found: Any) -> bool:
    """Whether gradients are what coefficients say, each beside its own terms."""
    parts = coefficients * columns
    missed = np.abs(parts.sum(axis=-1) - found)
    return bool(np.all(missed <= _TOLERANCE * (np.abs(parts).sum(axis=-1) + np.abs(found))))


def is_usable(size: NDArray[np.float64]) -> bool:
    """Whether positive parameters are so far from under- and overflow that multiples exist."""
    return bool(np.all((size > 1e-50) & (size < 1e50)))


def _between(rng: Any, powers: tuple[int, ...], size: int) -> NDArray[np.float64]:
    """One number in each interval of powers of ten, in another order for every parameter."""
    exponents = rng.uniform(powers[:-1], powers[1:], size=(size, len(powers) - 1))
    return np.asarray(10 ** rng.permuted(exponents, axis=1).T)


def _positive(rng: Any, size: NDArray[np.float64]) -> NDArray[np.float64]:
    return _between(rng, _POWERS, size.size)


def _share(rng: Any, size: NDArray[np.float64]) -> NDArray[np.float64]:
    odds = _between(rng, _ODDS, size.size)
    return odds / (1 + odds)


def _shares(rng: Any, size: NDArray[np.float64]) -> NDArray[np.float64]:
    x = _between(rng, _SHARES, size.size).reshape(-1, *size.shape)
    return (x / x.sum(axis=-1, keepdims=True)).reshape(len(x), -1)


def _gamma(rng: Any, terms: Any, shape: tuple[int, ...]) -> Any:
    return _standard_gamma(rng, terms[0] + 1) / -terms[1]


def _inverse_gamma(rng: Any, terms: Any, shape: tuple[int, ...]) -> Any:
    return terms[1] / _standard_gamma(rng, -terms[0] - 1)


def _beta(rng: Any, terms: Any, shape: tuple[int, ...]) -> Any:
    one, other = _standard_gamma(rng, terms[0] + 1), _standard_gamma(rng, 1 - terms[1])
    # away from the edges, as above
    return np.clip(one / (one + other), 1e-6, 1 - 1e-6)


def _dirichlet(rng: Any, terms: Any, shape: tuple[int, ...]) -> Any:
    x = _standard_gamma(rng, terms[0] + 1).reshape(shape)
    return (x / x.sum(axis=-1, keepdims=True)).ravel()


def _standard_gamma(rng: Any, shape: Any) -> Any:
    return np.where(shape > 0, rng.standard_gamma(np.where(shape > 0, shape, 1.0)), np.nan)


#: where the gradient of a family is looked at, the terms that it consists of, and a draw from the
#: law with such terms
FORMS: dict[str, Any] = {
    "gamma": (_positive, (np.reciprocal, np.ones_like), _gamma),
    "inverse gamma": (_positive, (np.reciprocal, lambda x: x**-2.0), _inverse_gamma),
    "beta": (_share, (np.reciprocal, lambda x: 1 / (1 - x)), _beta),
    "dirichlet": (_shares, (np.reciprocal,), _dirichlet),
}
