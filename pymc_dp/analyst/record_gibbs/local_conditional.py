"""Draw records with few possible values from their conditional, all of them at once.

Where a release keeps the records apart (randomised response, noise on every record), a record's
conditional given the parameters and its own report does not involve the other records. With few
possible values it is a short table: no proposal is rejected on account of the report.
"""

from __future__ import annotations

from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.record_gibbs.drawing import draw_from
from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.graph.support import small_support

__all__ = ["draw_local_conditional"]

#: values a record may have at the most for its conditional to be tabulated
MOST_VALUES = 100


def draw_local_conditional(block: RecordBlock) -> TensorVariable | None:
    r"""Symbolic draw of every record from p(record | parameters, the block's per-record terms).

    The density is :math:`p(x_i = c \mid \theta) \exp(\text{term}_i(c))`, normalised over c; drawn
    by inverting its distribution function.

    Returns
    -------
    TensorVariable or None
        None where there are no such terms, or the block is not one vector of records with few
        possible values: then the records are proposed from the model and accept or reject.
    """
    if not block.factors or len(block.records) != 1:
        return None
    record: Any = block.records[0]
    support = small_support(record)
    if support is None or record.type.ndim != 1 or len(support) > MOST_VALUES:
        return None
    terms: Any = sum(term.astype("float64") for term in block.factors.values())
    columns = []
    for value in support:
        everywhere = pt.full((length_of(record),), value, dtype=record.dtype)
        prior = pm.logp(record, everywhere, warn_rvs=False)
        # graph_replace, unlike clone_replace, leaves the parameters the variables they are
        columns.append(prior + graph_replace([terms], {record: everywhere})[0])
    share = pt.special.softmax(pt.stack(columns, axis=1), axis=1)
    uniform = draw_from(pt.random.uniform, size=(length_of(record),))
    below = pt.cumsum(share, axis=1)[:, :-1] < uniform[:, None]
    return below.sum(axis=1).astype(record.dtype)
