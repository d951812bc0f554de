"""Parameters that other libraries report, looked up by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Parameters", "unknown"]


def unknown(library: str, name: str, known: Iterable[str]) -> ValueError:
    """Tell which mechanisms of a library are known."""
    return ValueError(
        f"No mechanism is known for {library}'s {name!r}; known are {', '.join(known)}. Write the "
        "mechanism by its noise."
    )


class Parameters:
    """Look up a parameter, or say which one is missing; refuse those that are not known."""

    def __init__(self, source: str, given: Mapping[str, Any], known: set[str]) -> None:
        self.source, self.given = source, given
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(
                f"{source} came with {unknown[0]!r}, and what that does to the noise is not known; "
                f"known are {', '.join(sorted(known))}. Write the mechanism by its noise."
            )

    def __call__(self, name: str) -> Any:
        """Value of a parameter that is needed."""
        value = self.given.get(name)
        if value is None:
            raise ValueError(f"{self.source} needs the parameter {name!r}, which was not given.")
        return value
