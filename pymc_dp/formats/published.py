"""What every release tells: statistic, mechanism, value, guarantee, number of records, origin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pymc_dp
from pymc_dp.accounting.budget import record_weight
from pymc_dp.formats.claim import check_claim, check_count
from pymc_dp.formats.document import in_field, known_fields, one_line
from pymc_dp.formats.mechanism import mechanism_from_plain, mechanism_to_plain
from pymc_dp.mechanisms import Mechanism, RandomizedResponse
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.mechanisms.base import positive
from pymc_dp.mechanisms.postprocess import Thresholded
from pymc_dp.numerics.arguments import number
from pymc_dp.types import Neighbours

__all__ = ["Published"]

#: what may be said of where a release comes from; nothing is filled in but the package itself
_ORIGINS = ("tool", "version", "publisher", "date", "url", "note")


def _this_package() -> dict[str, str]:
    return {"tool": "pymc_dp", "version": pymc_dp.__version__}


@dataclass(frozen=True, eq=False, repr=False)
class Published:
    """A released value with all that is needed to infer from it, each part checked.

    :class:`~pymc_dp.StatisticRelease` documents the attributes. Nothing in it was computed from
    confidential records but what left a mechanism.
    """

    statistic: str
    mechanism: Mechanism
    value: Any
    sensitivity: Any = None
    neighbours: Neighbours | None = None
    epsilon: float | None = None
    delta: float = 0.0
    rho: float | None = None
    n: float | None = None
    n_mechanism: Mechanism | None = None
    bounds: Mapping[str, Any] | None = None
    provenance: Mapping[str, str] = field(default_factory=_this_package)

    def __post_init__(self) -> None:
        if not isinstance(self.statistic, str) or not self.statistic.strip():
            raise ValueError(
                f"statistic must say in words what was released, such as 'sum of ages, each "
                f"clamped to 18..90', not {self.statistic!r}."
            )
        one_line("statistic", self.statistic)
        if not isinstance(self.mechanism, Mechanism):
            raise TypeError(
                f"mechanism must be one of pmdp's, e.g. pmdp.Laplace(scale=2), not "
                f"{self.mechanism!r}."
            )
        self._set("value", _checked_value("value", self.value, self.mechanism))
        self._set("sensitivity", self._checked_sensitivity())
        self._check_guarantee()
        self._check_number()
        self._set("bounds", _checked_bounds(self.bounds))
        self._set("provenance", _checked_provenance(self.provenance))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _checked_sensitivity(self) -> NDArray[np.float64] | None:
        known = self.mechanism.sensitivity
        if self.sensitivity is None:
            return known
        with in_field("sensitivity"):
            given = positive("sensitivity", self.sensitivity)
            if given.ndim and given.shape != self.value.shape:
                raise ValueError(
                    f"it has shape {given.shape} and the value {self.value.shape}: write one "
                    "number for the whole statistic, or one for every component."
                )
            if known is not None and not np.array_equal(given, known):
                raise ValueError(
                    f"{given} contradicts {known}, to which {self.mechanism!r} was calibrated."
                )
        return given

    def _check_guarantee(self) -> None:
        """Fill the guarantee in where it follows, and refuse one that the noise does not keep."""
        with in_field("guarantee"):
            for name in ("epsilon", "rho"):
                if (given := getattr(self, name)) is not None:
                    self._set(name, number(name, given))
                    if not 0 <= number(name, given) < np.inf:
                        raise ValueError(f"{name} must be finite and not negative, got {given!r}.")
            self._set("delta", number("delta", self.delta))
            if not 0 <= self.delta < 1:
                raise ValueError(f"delta must be in [0, 1), got {self.delta!r}.")
            if self.neighbours is not None:
                record_weight(self.neighbours)
            if self.epsilon is None and self.rho is None:
                self._derive_guarantee()
            else:
                check_claim(self.mechanism, self.sensitivity, self.epsilon, self.delta, self.rho)
            if self.epsilon is None and self.delta:
                raise ValueError("delta says something together with epsilon alone: write it.")
            if (self.epsilon is not None or self.rho is not None) and self.neighbours is None:
                raise ValueError(
                    'neighbours is missing: write "substitute" where the guarantee is for a '
                    'record\'s values and the number of records is public, "add_remove" where it '
                    "is for its presence."
                )
            if isinstance(self.mechanism, RandomizedResponse) and self.neighbours == "add_remove":
                raise ValueError(
                    "reports of randomised response reveal the number of records: its guarantee "
                    'is for neighbours="substitute".'
                )

    def _derive_guarantee(self) -> None:
        several = self.value.size > 1 and self.mechanism.number_by_number
        reports = isinstance(self.mechanism, RandomizedResponse) and self.value.ndim > 1
        if reports or (several and not self.mechanism.noise.ndim):
            raise ValueError(
                f"{self.mechanism!r} tells what one number costs, and the value has "
                f"{self.value.size}: give the mechanism one sensitivity for every component, or "
                "write epsilon= of all that one record changes."
            )
        try:
            kept = self.mechanism.guarantee(
                None if isinstance(self.mechanism, RandomizedResponse) else self.sensitivity
            )
        except (NotImplementedError, ValueError):  # noise without a sensitivity
            return
        if kept.epsilon is None:
            self._set("rho", kept.rho)
        elif np.isfinite(kept.epsilon) and self.delta in (0, kept.delta):
            self._set("epsilon", kept.epsilon)
            self._set("delta", kept.delta)

    def _check_number(self) -> None:
        """Refuse a number of records that may be confidential itself."""
        with in_field("n"):
            if self.n is None:
                if self.n_mechanism is not None:
                    raise ValueError("n_mechanism says how n was noised: write n= too.")
                return
            if self.n_mechanism is not None:
                noisy = _checked_value("n", self.n, self.n_mechanism)
                if noisy.ndim:
                    raise ValueError(f"it must be one number, got {self.n!r}.")
                self._set("n", noisy.item())
                if self.neighbours != "substitute":
                    check_count(self.n_mechanism, self.epsilon, self.delta, self.rho)
                return
            if self.neighbours != "substitute":
                raise ValueError(
                    "an exact number of records is public only where a record's values are what is "
                    'protected: write neighbours="substitute"; or leave n out, or release it with '
                    "noise, n=noise.release(n), n_mechanism=noise."
                )
            if number("n", self.n) != int(self.n) or self.n < 0:
                raise ValueError(f"it must be a number of records, got {self.n!r}.")
            self._set("n", int(self.n))

    def guarantee_in_words(self) -> str:
        """Epsilon, delta or rho, and between which data sets."""
        if self.epsilon is None and self.rho is None:
            return "guarantee not known"
        parts = [] if self.epsilon is None else [f"epsilon {self.epsilon:.6g}"]
        parts += [f"delta {self.delta:g}"] * bool(self.delta)
        parts += [] if self.rho is None else [f"rho {self.rho:.6g} (zCDP)"]
        return f"{', '.join(parts)} ({self.neighbours})"

    def plain(self) -> dict[str, Any]:
        """Fields of the JSON document, in plain numbers and text."""
        known = self.epsilon is not None or self.rho is not None
        told = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "rho": self.rho,
            "neighbours": self.neighbours,
            "sensitivity": None if self.sensitivity is None else self.sensitivity.tolist(),
        }
        n_mechanism = None if self.n_mechanism is None else mechanism_to_plain(self.n_mechanism)
        return {
            "statistic": self.statistic,
            "mechanism": mechanism_to_plain(self.mechanism),
            "value": _null_for_nan(self.value.tolist()),
            "guarantee": told if known or self.neighbours else None,
            "n": None if self.n is None else {"value": self.n, "mechanism": n_mechanism},
            "bounds": None if self.bounds is None else dict(self.bounds),
            "provenance": dict(self.provenance),
        }

    def check_agrees(self, told: Published) -> None:
        """Refuse a document whose common fields do not say what its details say."""
        own, found = self.plain(), told.plain()
        for name in ("mechanism", "value", "guarantee", "n", "bounds"):
            if not _same(own[name], found[name]):
                raise ValueError(
                    f"{name}: it contradicts details, by which it is {own[name]} and not "
                    f"{found[name]}. One of them was changed: ask the publisher for the original."
                )

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> Any:
        """Read what :meth:`plain` wrote."""
        told: dict[str, Any] = {}
        if fields["guarantee"] is not None:
            names = ("epsilon", "delta", "rho", "neighbours", "sensitivity")
            told = known_fields("guarantee", fields["guarantee"], names)
        sensitivity, delta = told.get("sensitivity"), told.get("delta", 0.0)
        with in_field("guarantee"):
            if sensitivity is not None:
                sensitivity = positive("sensitivity", sensitivity)
            delta = number("delta", delta)
        with in_field("mechanism"):
            mechanism = mechanism_from_plain(fields["mechanism"], sensitivity, delta)
        told = told | {"sensitivity": sensitivity, "delta": delta}
        n = fields["n"]
        if n is not None:
            known_fields("n", n, ("value", "mechanism"))
            told["n"] = n["value"]
            if n["mechanism"] is not None:
                with in_field("n"):
                    told["n_mechanism"] = mechanism_from_plain(n["mechanism"])
        rest = {name: fields[name] for name in ("statistic", "bounds", "provenance")}
        return cls(mechanism=mechanism, value=fields["value"], **told, **rest)


def _checked_value(name: str, value: Any, mechanism: Mechanism) -> NDArray:
    """Return what the mechanism can have released, or say why it cannot."""
    with in_field(name):
        if isinstance(mechanism, Thresholded) and np.isnan(mechanism.dropped):
            value = _nan_for_null(value)
        array = np.array(value)  # a copy: what is published does not change
        if array.dtype.kind not in "iuf":
            raise ValueError(f"it must be numbers, or lists of them of one length, got {value!r}.")
        if array.size == 0:
            raise ValueError("it is empty.")
        if _is_whole(mechanism) and np.any(np.abs(array.astype(float)) >= 2.0**63):
            raise ValueError(f"it has whole numbers of more than 64 bits, {value!r}.")
        if isinstance(mechanism, AdditiveNoise):
            mechanism.noise_of(array)
        mechanism.checked_release(name, array, mechanism.released_shape(array.shape))
        array = array.astype(mechanism.dtype)
        array.setflags(write=False)
        return array


def _is_whole(mechanism: Any) -> bool:
    """Whether noise was added to whole numbers."""
    while hasattr(mechanism, "inner"):
        mechanism = mechanism.inner
    return mechanism.dtype == "int64"


def _nan_for_null(value: Any) -> Any:
    if isinstance(value, list):
        return [_nan_for_null(each) for each in value]
    return np.nan if value is None else value


def _null_for_nan(value: Any) -> Any:
    if isinstance(value, list):
        return [_null_for_nan(each) for each in value]
    return None if value != value else value


def _same(one: Any, two: Any) -> bool:
    """Whether plain values agree, numbers to what rounding leaves of them."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, float) and isinstance(two, int | float):
        return math.isclose(one, two, rel_tol=1e-9)
    return bool(one == two)


def _checked_bounds(bounds: Any) -> dict[str, Any] | None:
    if bounds is None:
        return None
    if not isinstance(bounds, Mapping) or not all(isinstance(name, str) for name in bounds):
        raise ValueError(
            f"bounds must name public bounds of the records, {{'age': [18, 90]}}, not {bounds!r}."
        )
    return {name: _finite(f"bounds: {name!r}", each) for name, each in bounds.items()}


def _finite(what: str, value: Any) -> Any:
    """Numbers as plain ones, in lists within lists."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_finite(what, each) for each in value]
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ValueError(f"{what} must be finite numbers, got {value!r}.")
    if not np.isfinite(value):
        raise ValueError(f"{what} must be finite numbers, got {value!r}.")
    return value.item() if isinstance(value, np.number) else value


def _checked_provenance(provenance: Any) -> dict[str, str]:
    if not isinstance(provenance, Mapping):
        raise ValueError(f"provenance must be an object of {_ORIGINS}, not {provenance!r}.")
    for name, each in provenance.items():
        if name not in _ORIGINS or not isinstance(each, str):
            raise ValueError(
                f"provenance has {name!r}: {each!r}. Write text under {', '.join(_ORIGINS)}; "
                "seeds, paths and names of machines have no place in what is published."
            )
        one_line("provenance", each)
    return dict(provenance)
