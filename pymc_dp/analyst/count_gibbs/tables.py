"""The table of counts that stands in place of records with finitely many states."""

from __future__ import annotations

from typing import Any

from pytensor.tensor.random.basic import MultinomialRV

from pymc_dp.analyst.marginal.strategy import AuxiliaryRV, Integrated

__all__ = ["RecordCountsRV"]


class RecordCountsRV(AuxiliaryRV, MultinomialRV):
    """How many of n records are in each of their states: a multinomial variable.

    It knows which records it counts, and is no table of records itself: with public covariates its
    first axis is one row for every kind of record.
    """

    __props__: Any = (*MultinomialRV.__props__, "integrated")
    _print_name = ("RecordCounts", "\\operatorname{RecordCounts}")

    def __init__(self, integrated: Integrated, **kwargs: Any) -> None:
        self.integrated = integrated
        super().__init__(**kwargs)
