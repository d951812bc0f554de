"""What was released of regression statistics has to be known up to the statistics themselves."""

from __future__ import annotations

from typing import Any

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dp.analyst.release import Release
from pymc_dp.graph.intervals import unknowns

__all__ = ["check_known"]


def check_known(release: Release, latent: list[Any]) -> None:
    """Refuse a released statistic that has other latents, or data that can change, in it.

    Its matrix is found by evaluating it: a draw of the one, or today's value of the other, would
    be taken for a constant.
    """
    names = " and ".join(repr(str(rv.name)) for rv in latent)
    if others := unknowns(release.statistic, latent):
        raise ValueError(
            f"The statistic of {release.name!r} depends on {others[0]!r} besides {names}, and what "
            "is released has to be a known linear map of them. Sample this model with "
            "step=pm.NUTS()."
        )
    for var in ancestors([release.statistic], blockers=latent):
        if isinstance(var, SharedVariable) and not isinstance(var.type, RandomType):
            raise ValueError(
                f"The statistic of {release.name!r} holds {var.name or 'a shared variable'!r}, "
                f"which pm.set_data can change, and its map of {names} is read once: write the "
                "numbers themselves, as a NumPy array, in place of pm.Data."
            )
