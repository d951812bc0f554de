"""Which model it is whose variables PyMC is giving to steps."""

from __future__ import annotations

from typing import Any

import pymc as pm
from pymc.exceptions import BlockModelAccessError

from pymc_dp.compat import model_being_assigned

__all__ = ["model_of"]


def model_of(rv: Any) -> pm.Model | None:
    """Model of a latent variable, for a step's ``competence``, which is given the variable alone.

    A graph leads from a variable to its parents, so that what is made of it, a release of sums over
    it for instance, has to be looked for in the model. It is the one that PyMC's
    ``assign_step_methods`` was called with, which need not be the one in context
    (``pm.sample(model=model)``); elsewhere that in context.

    Returns
    -------
    Model or None
        None where the variable is not a latent one of such a model.
    """
    model = model_being_assigned()
    model = _in_context() if model is None else model
    return model if model is not None and rv in model.free_RVs else None


def _in_context() -> pm.Model | None:
    try:
        return pm.modelcontext(None)
    except (TypeError, BlockModelAccessError):  # there is none
        return None
