"""Both ways to draw Bartlett's factor; false-alarm rate 1e-5 a comparison."""

import numpy as np
import pytensor
import pytensor.tensor as pt
from scipy import stats

from pymc_dp.graph.intervals import ONCE
from pymc_dp.numerics.wishart import bartlett, bartlett_graph

FALSE_ALARM = 1e-5
SIZE, DEGREES, NUMBER = 3, 4.5, 4000


def compiled():
    rng = np.random.default_rng(1)
    return np.array([bartlett(rng, SIZE, DEGREES) for _ in range(NUMBER)])


def symbolic():
    rng = pytensor.shared(np.random.default_rng(2))
    _, factors = bartlett_graph(rng, pt.as_tensor(np.full(NUMBER, DEGREES)), SIZE, (NUMBER,))
    return factors.eval(mode=ONCE)


def test_factors_are_those_of_a_wishart_matrix():
    for draws in (compiled(), symbolic()):
        assert draws.shape == (NUMBER, SIZE, SIZE)
        assert np.all(np.triu(draws, 1) == 0)
        below = draws[:, *np.tril_indices(SIZE, -1)]
        assert stats.kstest(below.ravel(), "norm").pvalue > FALSE_ALARM
        for i in range(SIZE):
            squares = draws[:, i, i] ** 2
            assert stats.kstest(squares, stats.chi2(DEGREES - i).cdf).pvalue > FALSE_ALARM
        determinants = np.linalg.slogdet(draws @ draws.mT)[1]
        expected = stats.wishart(DEGREES, np.eye(SIZE)).rvs(NUMBER, random_state=3)
        other = np.linalg.slogdet(expected)[1]
        assert stats.ks_2samp(determinants, other).pvalue > FALSE_ALARM
