"""Releases of OpenDP, by its measurements or by the summaries of its Polars queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_dp.analyst.statistic_release import StatisticRelease
from pymc_dp.interop.opendp_measurement import from_opendp, opendp
from pymc_dp.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    RandomizedResponse,
)
from pymc_dp.types import Neighbours

__all__ = ["opendp_release", "opendp_summary_releases"]

_DISTRIBUTIONS: dict[str, Any] = {
    "Integer Laplace": DiscreteLaplace,
    "Float Laplace": Laplace,
    "Integer Gaussian": DiscreteGaussian,
    "Float Gaussian": Gaussian,
}
#: columns that every summary has
_FIELDS = ("column", "aggregate", "distribution", "scale")
#: what a measurement's map gives, by its privacy measure
_GUARANTEES = {
    "MaxDivergence": ["epsilon"],
    "Approximate(MaxDivergence)": ["epsilon", "delta"],
    "ZeroConcentratedDivergence": ["rho"],
}
#: distances between data sets, and which neighbours are one apart
_DISTANCES: dict[str, Neighbours] = {
    "SymmetricDistance()": "add_remove",
    "InsertDeleteDistance()": "add_remove",
    "ChangeOneDistance()": "substitute",
    "HammingDistance()": "substitute",
    "DiscreteDistance()": "substitute",
}


def opendp_release(
    measurement: Any,
    value: Any,
    statistic: str,
    *,
    d_in: Any = None,
    neighbours: Neighbours | None = None,
    keys: Sequence[Any] | None = None,
    **facts: Any,
) -> StatisticRelease | list[StatisticRelease]:
    """Describe what an OpenDP measurement released.

    Mechanism and guarantee are read from the measurement: see :func:`from_opendp`, and its ``map``.

    Parameters
    ----------
    measurement : opendp.Measurement, query or str
        As of :func:`from_opendp`.
    value : number, list or dict
        What it returned.
    statistic : str
        What was released, in words.
    d_in : number or tuple, optional
        Distance of neighbouring data sets, in the measurement's metric. By default 1, or 2 where
        records are added and removed and `neighbours` says that one is substituted.
    neighbours : {"substitute", "add_remove"}, optional
        Which data sets these are. Read from metrics that tell at a distance of 1; at a distance of
        2 between tables of a known size records are substituted. What does not fit the metric is
        refused.
    keys : list, optional
        For a histogram with a threshold: all keys that there could have been, in the order in which
        the statistic will have them. Those that are not in `value` were dropped.
    **facts
        Other arguments of :class:`~pymc_dp.StatisticRelease`: ``n``, ``bounds``, ``provenance``.

    Returns
    -------
    StatisticRelease, or a list of them for a composition
        The guarantee of a composition is that of all its releases together.

    Examples
    --------
    >>> import opendp.prelude as dp
    >>> from pymc_dp.interop import opendp_release
    >>> dp.enable_features("contrib")
    >>> table = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    >>> total = table >> dp.t.then_clamp((0, 10)) >> dp.t.then_sum() >> dp.m.then_laplace(20.0)
    >>> opendp_release(total, 1234, "sum of visits, each clamped to 0..10")  # total(...) gave 1234
    StatisticRelease of sum of visits, each clamped to 0..10: 1234, DiscreteLaplace(scale=20.); epsilon 0.5 (add_remove)
    """  # noqa: E501
    dp = opendp()
    if isinstance(measurement, str):
        measurement = dp.deserialize(measurement)
    elif hasattr(measurement, "resolve"):
        measurement = measurement.resolve()
    mechanism = from_opendp(measurement)
    if d_in is None:
        metric = _DISTANCES.get(str(measurement.input_metric))
        d_in = 2 if metric == "add_remove" and neighbours == "substitute" else 1
    neighbours = _neighbours(measurement, d_in, neighbours)
    told: dict[str, Any] = {"provenance": {"tool": "OpenDP"}, **facts, "neighbours": neighbours}
    told |= _guarantee(measurement, d_in)
    if isinstance(mechanism, list):
        if len(value) != len(mechanism):
            raise ValueError(
                f"The composition has {len(mechanism)} releases, and value has {len(value)}: pass "
                "the list that the measurement returned."
            )
        parts = _arguments(measurement)["measurements"]
        pairs = enumerate(zip(mechanism, map(_reports, parts, mechanism, value), strict=True), 1)
        return [StatisticRelease(f"{statistic} ({i})", m, v, **told) for i, (m, v) in pairs]
    value = _reports(measurement, mechanism, value)
    if isinstance(value, Mapping):
        if keys is None:
            raise ValueError(
                "value has keys: write keys=[...], all that there could have been, so that those "
                "which were dropped are known."
            )
        _no_key_twice(keys)
        statistic = f"{statistic}, by {', '.join(map(str, keys))}"
        if strangers := [key for key in value if key not in keys]:
            raise ValueError(f"value has {strangers[0]!r}, which is not in keys=.")
        value = [value.get(key, math.nan) for key in keys]
    return StatisticRelease(statistic, mechanism, value, **told)


def _neighbours(measurement: Any, d_in: Any, said: Neighbours | None) -> Neighbours | None:
    """Tell which data sets are `d_in` apart; refuse what was said where that is not so."""
    metric, sized = str(measurement.input_metric), "size=" in str(measurement.input_domain)
    by_metric = _DISTANCES.get(metric)
    if said is None:
        if by_metric == "add_remove" and d_in == 2 and sized:
            return "substitute"
        return by_metric if d_in == 1 else None
    if said == "substitute" and by_metric == "add_remove" and d_in < 2:
        raise ValueError(
            f'neighbours="substitute" needs d_in=2 under {metric}: one record is removed and '
            f"another one added. Got d_in={d_in!r}."
        )
    if said == "add_remove" and by_metric is not None and (sized or by_metric == "substitute"):
        why = "tables of a known size" if sized else metric
        raise ValueError(
            f'neighbours="add_remove" cannot be said of {why}: the measurement promises nothing '
            'when a record is added or removed. Write neighbours="substitute".'
        )
    return said


def _guarantee(measurement: Any, d_in: Any) -> dict[str, Any]:
    measure = str(measurement.output_measure)
    names = _GUARANTEES.get(measure)
    if names is None:
        raise ValueError(
            f"The measurement tells its guarantee by {measure}: pass the measurement before it was "
            "converted, or dp.c.make_fix_delta(measurement, delta)."
        )
    kind = float if "f64" in str(measurement.input_metric) else None
    found = measurement.map(kind(d_in) if kind and not isinstance(d_in, tuple) else d_in)
    told = dict(zip(names, found if isinstance(found, tuple) else (found,), strict=True))
    if not any(told.values()):
        raise ValueError(
            f"At d_in={d_in!r} the measurement's map is 0, as if nothing had been told: no "
            "different data sets are that close. Write the distance of neighbouring ones, d_in=2 "
            "for tables of a known size."
        )
    return told


def _arguments(measurement: Any) -> dict[str, Any]:
    """Arguments of the measurement inside what was said of it or done before it."""
    arguments = measurement.__opendp_dict__["__kwargs__"]
    inner = arguments.get("measurement", arguments.get("measurement1"))
    return arguments if inner is None else _arguments(inner)


def _reports(measurement: Any, mechanism: Any, value: Any) -> Any:
    """Numbers of the categories that randomised response reported; other values as they are."""
    if not isinstance(mechanism, RandomizedResponse):
        return value
    categories = _arguments(measurement).get("categories", [False, True])
    if isinstance(value, list | tuple | np.ndarray):
        return [categories.index(each) for each in value]
    return categories.index(value)


def opendp_summary_releases(
    summary: Any,
    released: Any,
    *,
    keys: Sequence[Any] | None = None,
    columns: Sequence[str] | None = None,
    unsigned: Sequence[str] | None = None,
    **facts: Any,
) -> dict[str, StatisticRelease]:
    """Describe what an OpenDP query of a Polars frame released, by its ``summarize()``.

    Parameters
    ----------
    summary : polars.DataFrame or dict of lists
        What ``query.summarize()`` returned.
    released : polars.DataFrame or dict of lists
        What ``query.release().collect()`` returned.
    keys : list, optional
        Where small groups were dropped (the summary has a threshold): all groups that there could
        have been; tuples where several columns make a group. Without it nothing is said of those
        that were dropped.
    columns : list of str, optional
        Columns of the summary to read; all by default.
    unsigned : list of str, optional
        Columns that OpenDP clamped at zero, as it does with unsigned integers: counts unless
        ``signed=True``, and sums of unsigned columns. Read from the columns' types in a Polars
        frame.
    **facts
        Other arguments of :class:`~pymc_dp.StatisticRelease`, such as the query's guarantee:
        ``epsilon``, ``delta``, ``rho``, ``neighbours``. It is that of all columns together.

    Returns
    -------
    dict of str to StatisticRelease
        By column. Where groups were dropped, the thresholded count has ``np.nan`` for them, in the
        order of `keys`, and other columns have the groups that are left, in the same order.

    Examples
    --------
    >>> from pymc_dp.interop import opendp_summary_releases
    >>> summary = {
    ...     "column": ["len"],
    ...     "aggregate": ["Frame Length"],
    ...     "distribution": ["Integer Laplace"],
    ...     "scale": [2.0],
    ...     "threshold": [33],
    ... }
    >>> released = {"ward": ["east", "north"], "len": [51, 48]}
    >>> found = opendp_summary_releases(
    ...     summary, released, keys=["north", "east", "south"], unsigned=["len"]
    ... )
    >>> found["len"].value
    array([48., 51., nan])
    """
    rows, table = _columns(summary), _columns(released)
    if missing := [name for name in _FIELDS if name not in rows]:
        raise ValueError(
            f"The summary has no column {missing[0]!r}: pass what query.summarize() returned."
        )
    names = list(rows["column"])
    read = names if columns is None else columns
    if strangers := [name for name in read if name not in names or name not in table]:
        raise ValueError(
            f"{strangers[0]!r} is not a column of both the summary and the released frame: these "
            f"have {names} and {list(table)}."
        )
    if unsigned is None:
        unsigned = _unsigned(released, names)
    groups = [name for name in table if name not in names]
    order = _order(table, groups, keys)
    found = {}
    for i, name in enumerate(names):
        if name not in read:
            continue
        if names.count(name) > 1:
            raise ValueError(
                f"{name!r} is made of {names.count(name)} noisy numbers, none of which was "
                "published: release the sum and the count themselves, or leave it out of columns=."
            )
        row = {field: values[i] for field, values in rows.items()}
        mechanism, dropping = _noise(row, unsigned)
        value = [table[name][at] if at is not None else math.nan for at in order]
        here = [at is not None for at in order]
        if not dropping:
            value = [each for each, there in zip(value, here, strict=True) if there]
        words = f"{row['aggregate']} ({name})"
        if groups:
            cells = keys if dropping and keys is not None else None
            words += f", by {', '.join(groups)}: {_cells(table, groups, order, cells)}"
        told: dict[str, Any] = {"provenance": {"tool": "OpenDP"}, **facts}
        found[name] = StatisticRelease(words, mechanism, value if groups else value[0], **told)
    return found


def _noise(row: Mapping[str, Any], unsigned: Sequence[str] | None) -> tuple[Any, bool]:
    """Mechanism of one row of a summary, and whether it dropped groups."""
    name, distribution = row["column"], row["distribution"]
    if distribution not in _DISTRIBUTIONS or not row["scale"]:
        raise ValueError(
            f"{name!r} has the distribution {distribution!r} with scale {row['scale']!r}; known "
            f"are {', '.join(_DISTRIBUTIONS)}. Leave it out of columns=, and write its mechanism "
            "in your model."
        )
    noise = _DISTRIBUTIONS[distribution](row["scale"])
    threshold = row.get("threshold")
    if threshold is not None:  # groups are kept whose noisy length is above it, unlike dp.m's
        return noise.thresholded(int(threshold) + 1, dropped=math.nan), True
    if distribution.startswith("Integer") and unsigned is None:
        raise ValueError(
            f"{name!r} may have been clamped at zero, as OpenDP does with unsigned integers: pass "
            "the Polars frame itself, or unsigned=[...] with the names of those that were, "
            "unsigned=[] if none was."
        )
    return (noise.clamped(lower=0) if unsigned and name in unsigned else noise), False


def _columns(frame: Any) -> dict[str, list[Any]]:
    if isinstance(frame, Mapping):
        return {name: list(values) for name, values in frame.items()}
    if not hasattr(frame, "to_dict"):
        raise TypeError(f"{frame!r} is no Polars frame: write query.release().collect().")
    return dict(frame.to_dict(as_series=False))


def _unsigned(released: Any, names: Sequence[str]) -> list[str] | None:
    """Columns of unsigned integers, where types are known."""
    if isinstance(released, Mapping):
        return None
    return [name for name in names if str(released.schema.get(name)).startswith("UInt")]


def _order(
    table: Mapping[str, list[Any]], groups: Sequence[str], keys: Sequence[Any] | None
) -> list[int | None]:
    """Rows of the table in the order of the keys; None for those that it does not have."""
    length = len(next(iter(table.values())))
    if not groups and length != 1:
        raise ValueError(
            f"The released frame has {length} rows and no column that tells them apart: pass it "
            "with the columns of its groups."
        )
    present = [_key(table, groups, at) for at in range(length)]
    if len(set(present)) < length:
        again = next(key for at, key in enumerate(present) if key in present[:at])
        raise ValueError(
            f"The released frame has the group {again} more than once, by the columns {groups}: "
            "pass one release's frame, with all columns of its groups."
        )
    if keys is None:
        return list(range(length))
    _no_key_twice(keys)
    wanted = [key if isinstance(key, tuple) else (key,) for key in keys]
    if strangers := [key for key in present if key not in wanted]:
        raise ValueError(f"The released frame has the group {strangers[0]}, which is not in keys=.")
    return [present.index(key) if key in present else None for key in wanted]


def _no_key_twice(keys: Sequence[Any]) -> None:
    """Insist that each released number is read once."""
    if len(set(keys)) < len(keys):
        again = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise ValueError(
            f"keys= has {again!r} more than once, which would count one released number as several."
        )


def _key(table: Mapping[str, list[Any]], groups: Sequence[str], at: int) -> tuple[Any, ...]:
    return tuple(table[name][at] for name in groups)


def _cells(
    table: Mapping[str, list[Any]],
    groups: Sequence[str],
    order: Sequence[int | None],
    keys: Sequence[Any] | None,
) -> str:
    if keys is None:
        keys = [_key(table, groups, at) for at in order if at is not None]
    parts = (key if isinstance(key, tuple) else (key,) for key in keys)
    return ", ".join(" ".join(map(str, part)) for part in parts)
