"""Say, before a budget is spent on a chain, that it would buy too few draws."""

import logging

__all__ = ["tell_if_few"]

_log = logging.getLogger("pymc_dp")

_FEW = 100  # effective draws, below which a chain tells less than a noised score


def tell_if_few(draws: float, what: str) -> None:
    """Name what serves better, where a forecast of effective draws is low.

    Parameters
    ----------
    draws : float
        The forecast, or a bound on it, made without the confidential data.
    what : str
        Who makes it.
    """
    if draws < _FEW:
        _log.warning(
            "%s: this budget buys about %.0f effective draws or fewer. A private chain pays for "
            "every look at the data; pymc_dp.score_release looks once, and posteriors from it take "
            "as many draws as you like.",
            what,
            draws,
        )
