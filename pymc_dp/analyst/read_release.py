"""Read a release of any kind from its JSON."""

from __future__ import annotations

from pymc_dp.analyst.score.release import ScoreRelease
from pymc_dp.analyst.statistic_release import StatisticRelease
from pymc_dp.formats.document import Source, document_of
from pymc_dp.holder.regression_release import RegressionRelease

__all__ = ["read_release"]

KINDS = {
    "StatisticRelease": StatisticRelease,
    "RegressionRelease": RegressionRelease,
    "ScoreRelease": ScoreRelease,
}


def read_release(source: Source) -> StatisticRelease | RegressionRelease | ScoreRelease:
    """Read a release of any kind.

    Parameters
    ----------
    source : path, str or dict
        A file, the JSON itself, or what ``json.loads`` made of it.

    Returns
    -------
    StatisticRelease, RegressionRelease or ScoreRelease
        By the document's kind.

    Raises
    ------
    ValueError
        Where the document has another version, lacks a field, has one that is not known, or where
        its parts contradict each other. The message names the field.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> noise = pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1)
    >>> text = pmdp.StatisticRelease("visits", noise, 41, neighbours="add_remove").to_json()
    >>> pmdp.read_release(text)
    StatisticRelease of visits: 41, DiscreteLaplace(scale=2.); epsilon 0.5 (add_remove)
    """
    kind = document_of(source, KINDS)["kind"]
    return KINDS[kind].from_json(source)  # type: ignore[attr-defined]
