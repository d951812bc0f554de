"""Whether a model is still what it was."""

from collections.abc import Hashable

import pymc as pm

__all__ = ["model_state"]


def model_state(model: pm.Model) -> Hashable:
    """Tell what of a model may change after it was made: its variables, and data in containers.

    To be compared with what it was before, while the model lives.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_dp.graph.state import model_state
    >>> with pm.Model() as model:
    ...     n = pm.Data("n", 10)
    ...     x = pm.Binomial("x", n, 0.5)
    >>> before = model_state(model)
    >>> model.set_data("n", 11)
    >>> model_state(model) == before
    False
    """
    variables = [*model.basic_RVs, *model.value_vars, *model.deterministics, *model.potentials]
    held = [var for var in model.data_vars if hasattr(var, "get_value")]
    data = [value.get_value(borrow=True) for value in held]
    return (
        tuple(map(id, variables)),
        tuple((str(value.dtype), value.shape, value.tobytes()) for value in data),
        tuple((str(rv.name), repr(start)) for rv, start in model.rvs_to_initial_values.items()),
    )
