"""ArviZ imported without JAX."""

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

__all__ = ["import_arviz"]


def import_arviz() -> None:
    """Import ArviZ and leave JAX alone, which takes half a second and 110 to 130 megabytes.

    ArviZ has JAX imported as soon as it is used, and that is when anyone looks: `inspect.stack`,
    by which it is noted down where NumPyro was missing, asks every module for its file, and SciPy
    asks JAX for its arrays. What ArviZ does with JAX needs NumPyro, too. Where that is missing
    ArviZ is told so of both.
    """
    names = ("jax", "numpyro")
    if "arviz_base" in sys.modules or any(name in sys.modules for name in names):
        return
    installed = [find_spec(name) is not None for name in ("lazy_loader", *names)]
    if installed != [True, True, False]:
        return
    missing = import_module("lazy_loader").load("numpyro")
    missing.__file__ = None  # for whoever looks at the stack
    sys.modules |= dict.fromkeys(names, missing)
    try:
        with suppress(ImportError):  # which ArviZ's next import tells
            import_module("arviz_base")
    finally:
        for name in names:
            del sys.modules[name]
