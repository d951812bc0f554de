"""A statistic that was released with noise, as it is published, and how it enters a model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.privatized import Privatized
from pymc_dp.formats.document import Source, document_of, write
from pymc_dp.formats.mechanism import with_function
from pymc_dp.formats.published import Published

__all__ = ["StatisticRelease"]


@dataclass(frozen=True, eq=False, repr=False)
class StatisticRelease(Published):
    """A released value with its mechanism and guarantee, to publish as JSON and to infer from.

    Whoever holds the data makes it of what ``mechanism.release`` returned; readers of
    :mod:`pymc_dp.interop` make it of what other tools report; :func:`~pymc_dp.read_release` reads
    it. What does not fit together is refused: a value that the mechanism cannot give, noise that
    is too small for the guarantee, an exact number of records where that is confidential.

    Parameters
    ----------
    statistic : str
        What was released, in words, bounds included.
    mechanism : Mechanism
        The noise, and what happened after it.
    value : array_like
        The released value. Cells that a threshold dropped have its marker.
    sensitivity : float or array, optional
        Most that one record changes the statistic, in the mechanism's norm; by default what the
        mechanism was calibrated to.
    neighbours : {"substitute", "add_remove"}, optional
        Which data sets the guarantee makes hard to tell apart; to be written with a guarantee.
    epsilon, delta, rho : float, optional
        The guarantee. Left out, it is the mechanism's at this sensitivity.
    n : int, optional
        Number of records; exact only with ``neighbours="substitute"``.
    n_mechanism : Mechanism, optional
        The noise in `n`.
    bounds : dict, optional
        Public bounds of the records, by name: ``{"age": [18, 90]}``.
    provenance : dict, optional
        Text under ``tool``, ``version``, ``publisher``, ``date``, ``url`` and ``note``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> ages = np.random.default_rng(1).normal(44, 14, size=800)  # confidential
    >>> noise = pmdp.Laplace(epsilon=0.5, sensitivity=72)
    >>> release = pmdp.StatisticRelease(
    ...     "sum of ages, each clamped to 18..90",
    ...     noise,
    ...     noise.release(ages.clip(18, 90).sum()),
    ...     neighbours="substitute",
    ...     n=800,
    ...     bounds={"age": [18, 90]},
    ... )
    >>> text = release.to_json()

    Whoever receives it writes the statistic in terms of a model:

    >>> received = pmdp.read_release(text)
    >>> with pm.Model():
    ...     mean, sd = pm.Normal("mean", 45, 10), pm.Gamma("sd", 9, 0.6)
    ...     age = pm.Normal("age", mean, sd, shape=received.n)
    ...     _ = received.declare("released", pmdp.clamp(age, *received.bounds["age"]).sum())
    """

    def declare(
        self,
        name: str,
        statistic: TensorVariable,
        *,
        dims: Any = None,
        utility: Callable[..., Any] | None = None,
        gradient: Callable[..., Any] | None = None,
    ) -> TensorVariable:
        """Declare, in the model in context, that this was released.

        Parameters
        ----------
        name : str
            Name of the released value in the model.
        statistic : TensorVariable
            The statistic, in terms of the model's latent records.
        dims : str or sequence of str, optional
            As of :func:`~pymc_dp.Privatized`.
        utility, gradient : callable, optional
            The function of an exponential or a K-norm gradient mechanism, of which a document has
            only words.

        Returns
        -------
        TensorVariable
            As of :func:`~pymc_dp.Privatized`.
        """
        mechanism = with_function(self.mechanism, utility=utility, gradient=gradient)
        return Privatized(name, statistic, mechanism, observed=np.array(self.value), dims=dims)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write everything as JSON, to a file if one is named."""
        return write("StatisticRelease", self.plain(), path)

    @classmethod
    def from_json(cls, source: Source) -> StatisticRelease:
        """Read what :meth:`to_json` wrote: a file, the text itself, or its fields."""
        fields = document_of(source, ["StatisticRelease"])
        if fields["details"] is not None:
            raise ValueError("details: a StatisticRelease has none, this one must be null.")
        return cls.from_plain(fields)

    def _parts(self) -> list[tuple[str, str]]:
        parts = [
            ("statistic", self.statistic),
            ("value", np.array2string(self.value, precision=6, threshold=6)),
            ("mechanism", repr(self.mechanism)),
            ("guarantee", self.guarantee_in_words()),
        ]
        if self.n is not None:
            noise = "" if self.n_mechanism is None else f", noised by {self.n_mechanism!r}"
            parts.append(("records", f"{self.n:g}{noise}"))
        return parts

    def __repr__(self) -> str:
        parts = dict(self._parts())
        number = f"; {parts['records']} records" if "records" in parts else ""
        return (
            f"StatisticRelease of {parts['statistic']}: {parts['value']}, {parts['mechanism']}; "
            f"{parts['guarantee']}{number}"
        )

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in self._parts())
        return f"<table>{''.join(rows)}</table>"
