"""Settings of nutpie's sampler, whose names differ between its versions."""

from importlib import import_module
from inspect import signature

__all__ = ["nutpie_takes"]


def nutpie_takes(setting: str) -> bool:
    """Tell whether the nutpie that is installed, if one is, knows a setting."""
    try:
        nutpie = import_module("nutpie")
    except ImportError:
        return False
    settings = nutpie._lib.PyNutsSettings.Diag(0)
    named = settings.as_dict().get("settings", {}) if hasattr(settings, "as_dict") else {}
    return setting in signature(nutpie.sample).parameters or setting in named
