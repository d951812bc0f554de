"""Compiled functions of a few numbers, which are called at every draw."""

from __future__ import annotations

from typing import Any

from pymc_dp.compat import jit_function

__all__ = ["DirectCall"]


class DirectCall:
    """A compiled function, called without PyTensor's own ceremony.

    That takes longer than the few operations in it. What numba did not compile is called as usual.

    Parameters
    ----------
    function : compiled PyTensor function
        Of one output, and without updates.
    number : int
        How many arrays it is called with. Others that it uses, such as ``pm.Data``, come after
        these and are read at every call.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.direct_call import DirectCall
    >>> x = pt.dvector("x")
    >>> total = DirectCall(pytensor.function([x], x.sum(), mode="NUMBA"))
    >>> float(total(np.ones(3)))
    3.0
    """

    def __init__(self, function: Any, number: int = 1) -> None:
        self.function, self._number = function, number
        self._prepare()

    def _prepare(self) -> None:
        function = self.function
        function.trust_input = True
        self._compiled = jit_function(function) if hasattr(function.vm, "jit_fn") else None
        self._others = function.input_storage[self._number :]

    def __call__(self, *arrays: Any) -> Any:
        """Call it."""
        if self._compiled is None:
            return self.function(*arrays)
        return self._compiled(*arrays, *[other.storage[0] for other in self._others])[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "_number": self._number}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()
