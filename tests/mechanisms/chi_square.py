"""Chi-square tests of draws against a density."""

import numpy as np
import pytensor
from scipy import stats

#: probability that a correct sampler fails one comparison
FALSE_ALARM = 1e-5


def assert_follows(draws, values, log_p):
    """Fail unless whole-number draws follow probabilities exp(log_p) of `values`.

    Values with fewer than 20 draws expected, and whatever is not in `values`, are pooled.
    """
    draws, values = np.ravel(draws), np.asarray(values)
    expected = draws.size * np.exp(np.asarray(log_p, float))
    counts = np.array([(draws == v).sum() for v in values])
    often = expected >= 20
    observed = np.append(counts[often], draws.size - counts[often].sum())
    wanted = np.append(expected[often], draws.size - expected[often].sum())
    if wanted[-1] < 20:  # too little is left over: put it with the rarest value that is not
        rare = np.argmin(wanted[:-1])
        wanted[rare] += max(wanted[-1], 0.0)
        observed[rare] += observed[-1]
        observed, wanted = observed[:-1], wanted[:-1]
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    p_value = stats.chi2.sf(statistic, len(wanted) - 1)
    assert p_value > FALSE_ALARM, (
        f"chi-square {statistic:.1f} on {len(wanted) - 1}, p {p_value:.2g}"
    )


def evaluate(graph):
    """Value of an expression that is evaluated once, without compiling it to machine code."""
    return pytensor.function([], graph, mode="FAST_COMPILE")()
