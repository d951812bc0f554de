"""Statistical assertions for Markov chains, with a stated false-alarm rate.

`false_alarm` is the probability, at most, that a correct sampler fails one call. It is shared
out evenly among the comparisons that a call makes (Bonferroni), and every approximation is
taken on the side of fewer alarms:

* A chain's draws are worth fewer independent ones. Two unlike estimates of that number are
  made, ArviZ's (autocovariances) and batch means; the smaller one counts, at most the number
  of draws, and it is lowered further by the error such an estimate has itself
  (`effective_size`). Runs worth fewer than `MINIMUM_SIZE` draws are refused, not judged.
* The share of draws below a quantile is compared with a binomial tail at that lowered size and
  not with a normal one, which is too thin at the 5 and 95 percent levels.

The rate holds for a chain that has forgotten its start and whose runs are long against its
autocorrelation time. `tests/test_checks.py` measures it on autoregressive chains.
"""

from collections.abc import Callable
from dataclasses import dataclass

import arviz as az
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Array = NDArray[np.float64]

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
TAILS = (0.1, 0.5)
MINIMUM_SIZE = 200
BATCHES_PER_CHAIN = 20
MARGIN = 3

made: list["Report"] = []
"""Reports of the test that runs, for the table after `make calibrate` (tests/conftest.py)."""


@dataclass(frozen=True)
class Check:
    """One comparison: `p_value` is two-sided and conservative."""

    label: str
    observed: float
    expected: float
    effective_size: float
    p_value: float

    def __str__(self) -> str:
        return (
            f"{self.label}: {self.observed:.5g}, expected {self.expected:.5g} "
            f"(p = {self.p_value:.2g}, worth {self.effective_size:.0f} draws)"
        )


@dataclass(frozen=True)
class Report:
    """All comparisons of one call; `passed` has the false-alarm rate `false_alarm`."""

    checks: tuple[Check, ...]
    false_alarm: float

    def __post_init__(self) -> None:
        made.append(self)

    @property
    def passed(self) -> bool:
        return all(check.p_value >= self.false_alarm / len(self.checks) for check in self.checks)

    def __str__(self) -> str:
        bound = self.false_alarm / len(self.checks)
        lines = [f"{'ok  ' if c.p_value >= bound else 'FAIL'} {c}" for c in self.checks]
        return f"false-alarm rate {self.false_alarm:g}\n" + "\n".join(lines)


def effective_size(values: Array) -> float:
    """Cautious number of independent draws that `values` (chain, draw) are worth.

    The smaller of two estimates, lowered by `MARGIN` of its standard errors. The relative error of
    an estimate with window M is sqrt(4 M / N) (Sokal 1997), and M is about three times the
    autocorrelation time N / size, hence sqrt(12 / size).
    """
    total = values.size
    spread = values.var()
    if spread == 0:  # a chain that never moved
        return 0.0
    chains, draws = values.shape
    length = draws // BATCHES_PER_CHAIN
    batches = values[:, : length * BATCHES_PER_CHAIN].reshape(chains, BATCHES_PER_CHAIN, length)
    by_batches = spread * total / max(length * batches.mean(axis=2).var(ddof=1), 1e-300)
    size = min(float(az.ess(values, method="mean")), by_batches, total)
    return size / (1 + MARGIN * np.sqrt(12 / size))


def _draws(draws: ArrayLike) -> Array:
    values = np.asarray(draws, float)
    if values.ndim != 2 or values.shape[1] < 2 * BATCHES_PER_CHAIN:
        raise ValueError(
            f"draws must have shape (chain, draw) with at least {2 * BATCHES_PER_CHAIN} draws, "
            f"got {values.shape}"
        )
    assert np.all(np.isfinite(values)), "some draws are not finite"
    return values


def _require_size(label: str, size: float) -> None:
    assert size >= MINIMUM_SIZE, (
        f"the run is too short to judge: for '{label}' it is worth {size:.0f} independent draws, "
        f"at least {MINIMUM_SIZE} are needed; run longer or mix better"
    )


def _finish(checks: list[Check], false_alarm: float) -> Report:
    report = Report(tuple(checks), false_alarm)
    assert report.passed, f"the draws do not follow the exact distribution\n{report}"
    return report


def _share_check(label: str, hits: NDArray[np.bool_], expected: float, u: Array) -> Check:
    """Compare a share of draws with its exact value by a binomial tail at the effective size."""
    observed = float(hits.mean())
    # where every draw is on one side the indicator says nothing about mixing: ask the draws
    size = effective_size(u if observed in (0.0, 1.0) else hits.astype(float))
    _require_size(label, size)
    below = special.betaincc(size * observed + 1, max(size * (1 - observed), 1e-9), expected)
    above = special.betainc(max(size * observed, 1e-9), size * (1 - observed) + 1, expected)
    return Check(label, observed, expected, size, float(min(1.0, 2 * min(below, above))))


def assert_same_distribution(
    draws: ArrayLike, cdf: Callable[[Array], Array], false_alarm: float = 1e-5
) -> Report:
    """Fail unless the draws agree with an exact continuous distribution.

    Compares the share of draws below the 5, 25, 50, 75 and 95 percent points, and outside the
    central 90 and 50 percent (which sees a wrong spread better than one tail does).

    Parameters
    ----------
    draws : array of shape (chain, draw)
        Draws of one scalar, after warm-up.
    cdf : callable
        The exact cumulative distribution, vectorised.
    false_alarm : float
        Probability that a correct sampler fails.

    Returns
    -------
    Report
        What was compared, for messages.

    Raises
    ------
    AssertionError
        If a comparison fails, or if the run is too short for its autocorrelation.
    """
    u = np.asarray(cdf(_draws(draws)), float)
    checks = [_share_check(f"share below the {p:.0%} point", u <= p, p, u) for p in LEVELS]
    checks += [
        _share_check(f"share outside the central {1 - p:.0%}", np.abs(u - 0.5) > (1 - p) / 2, p, u)
        for p in TAILS
    ]
    return _finish(checks, false_alarm)


def _two_sided(z: float, size: float) -> float:
    """Tail of Student's t: a variance with relative error r has 2 / r^2 degrees of freedom."""
    return float(2 * stats.t.sf(abs(z), size / 6))


def assert_mean_and_sd(
    draws: ArrayLike,
    mean: float,
    sd: float,
    false_alarm: float = 1e-5,
    mean_error: float = 0.0,
    sd_error: float = 0.0,
) -> Report:
    """Fail unless the draws have the given mean and standard deviation.

    For references that are known by their moments alone. The mean's error is known but for the
    effective size, since `sd` is; the spread is compared on the log scale, where its estimate
    is closest to normal, with the draws' own fourth moment. The fourth moment must exist: for
    heavy tails use `assert_same_distribution`.

    Parameters
    ----------
    draws : array of shape (chain, draw)
        Draws of one scalar, after warm-up.
    mean, sd : float
        The reference.
    false_alarm : float
        Probability that a correct sampler fails.
    mean_error, sd_error : float
        Standard errors of the reference itself, when it comes from a long run.

    Returns
    -------
    Report
        What was compared, for messages.

    Raises
    ------
    AssertionError
        If a comparison fails, or if the run is too short for its autocorrelation.
    """
    values = _draws(draws)
    size = effective_size(values)
    _require_size("mean", size)
    z_mean = (values.mean() - mean) / np.hypot(sd / np.sqrt(size), mean_error)
    squares = (values - values.mean()) ** 2
    size_squares = effective_size(squares)
    _require_size("sd", size_squares)
    found = float(np.sqrt(squares.mean()))
    relative = squares.std() / squares.mean() / np.sqrt(size_squares) / 2
    z_sd = np.log(found / sd) / np.hypot(relative, sd_error / sd)
    return _finish(
        [
            Check("mean", float(values.mean()), mean, size, _two_sided(z_mean, size)),
            Check("sd", found, sd, size_squares, _two_sided(z_sd, size_squares)),
        ],
        false_alarm,
    )


def rank_uniformity(ranks: ArrayLike, n_draws: int, false_alarm: float = 1e-5) -> Report:
    """Judge the ranks of simulation-based calibration; nothing is raised.

    Each rank counts how many of `n_draws` (thinned, nearly independent) posterior draws lie
    below the parameter that made the data, so it is uniform on 0, ..., n_draws. Half of the
    false-alarm rate goes to a chi-square test on at most 20 bins with 20 ranks or more
    expected in each, half to the largest gap between the distribution functions, whose bound
    2 exp(-2 n gap^2) holds for every n (Dvoretzky, Kiefer and Wolfowitz; Massart 1990).

    Examples
    --------
    >>> report = rank_uniformity(np.arange(400) % 100, n_draws=99)
    >>> assert report.passed, report
    """
    values = np.asarray(ranks)
    if values.ndim != 1 or values.size < 40:
        raise ValueError(f"ranks must be a vector of at least 40, got shape {values.shape}")
    if np.any((values < 0) | (values > n_draws) | (values != np.round(values))):
        raise ValueError(f"ranks must be whole numbers from 0 to n_draws = {n_draws}")
    size = values.size
    bins = min(20, size // 20, n_draws + 1)
    bin_of_rank = np.arange(n_draws + 1) * bins // (n_draws + 1)
    expected = size * np.bincount(bin_of_rank, minlength=bins) / (n_draws + 1)
    counts = np.bincount(bin_of_rank[values.astype(int)], minlength=bins)
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    share = np.cumsum(np.bincount(values.astype(int), minlength=n_draws + 1)) / size
    gap = float(np.abs(share - np.arange(1, n_draws + 2) / (n_draws + 1)).max())
    chi_p = float(stats.chi2.sf(chi_square, bins - 1)) if bins > 1 else 1.0
    return Report(
        (
            Check(f"chi-square on {bins} bins", chi_square, bins - 1, size, chi_p),
            Check("largest gap", gap, 0.0, size, float(min(1.0, 2 * np.exp(-2 * size * gap**2)))),
        ),
        false_alarm,
    )
