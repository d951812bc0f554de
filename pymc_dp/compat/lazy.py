"""ArviZ imported without JAX."""

import sys
from importlib import import_module
from importlib.util import find_spec

__all__ = ["import_arviz"]


def import_arviz() -> None:
    """Import ArviZ and leave JAX alone, which takes half a second and 130 megabytes.

    ArviZ has JAX and NumPyro imported when they are used. Where NumPyro is missing, lazy_loader
    notes down where it was asked for, by `inspect.stack`, which asks every module for its file; JAX
    takes that for use. Here it is noted down before JAX is asked for.
    """
    if "arviz_base" in sys.modules or "numpyro" in sys.modules:
        return
    installed = [find_spec(name) is not None for name in ("lazy_loader", "jax", "numpyro")]
    if installed != [True, True, False]:
        return
    noted = import_module("lazy_loader").load("numpyro")
    noted.__file__ = None  # for others who look at the stack
    sys.modules["numpyro"] = noted
    try:
        import_module("arviz_base")
    finally:
        del sys.modules["numpyro"]
