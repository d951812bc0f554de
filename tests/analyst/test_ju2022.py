"""The two applications of Ju, Awan, Gong & Rao (2022), against an independent program.

The released numbers are those of the authors' published examples (naive Bayes with epsilon = 1,
regression with epsilon = 10); the quantiles come from one to two million sweeps of a program
written for these two problems alone.
"""

import numpy as np
import pytest
from scipy import stats

from examples.naive_bayes import build as naive_bayes
from examples.regression import build as regression
from tests.checks import effective_size
from tests.sampling import draw

LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])

# cells[feature, class, value] with Laplace noise of scale 2 * 5 / epsilon, epsilon = 1
CELLS = np.array(
    [
        [
            [-4.329606, 0.046188, 2.574807],
            [19.950807, -3.079162, 17.93463],
            [24.013881, 4.880117, 9.987135],
            [-8.909269, 14.131446, 17.590343],
            [7.684779, 0.363045, 11.758395],
        ],
        [
            [3.953879, 6.713491, 42.234968],
            [0.256557, 16.094348, 20.356962],
            [-6.573498, 6.614686, -8.818634],
            [15.734667, 3.415248, -1.200751],
            [1.318276, 17.446984, -1.846365],
        ],
        [
            [-0.364978, 7.220587, 0.869985],
            [-1.876922, 11.634767, 6.1088],
            [14.87897, -11.32999, 5.931605],
            [46.046526, 19.269223, 9.483106],
            [12.344009, 2.121307, 5.612789],
        ],
        [
            [11.644397, -28.648165, 0.533906],
            [11.247925, 8.868863, 1.542065],
            [18.816423, -0.321675, -4.141777],
            [8.435411, -8.147906, 22.419936],
            [6.379807, 4.915772, 0.937878],
        ],
        [
            [21.472748, -5.323783, 1.145853],
            [3.917149, 6.591651, -6.615835],
            [5.561427, 8.606155, -14.808562],
            [30.888683, 42.116071, 11.359426],
            [3.338041, -4.041412, 2.515474],
        ],
    ]
)
#: quantiles of the class shares, and the effective draws behind them
SHARES = [
    ([0.03259, 0.0728, 0.1103, 0.1541, 0.22671], 96313),
    ([0.10061, 0.16251, 0.20887, 0.25817, 0.33312], 101264),
    ([0.06459, 0.11886, 0.16257, 0.20978, 0.2835], 94814),
    ([0.23446, 0.30922, 0.36445, 0.42105, 0.50667], 96445),
    ([0.04997, 0.09461, 0.13253, 0.17476, 0.24232], 104704),
]

# x'y (3), y'y and the five noised entries of x'x, Laplace noise of scale 13 / 10
SUMS = [
    -38.24397505,
    -6.67830047,
    3.19974339,
    27.19852449,
    9.88347615,
    -13.85033063,
    2.18818009,
    -2.28842284,
    3.40915315,
]
MEAN = [0.900141986388868, -1.17334577255249]
COEFFICIENTS = [
    ([-3.75508, -2.32952, -1.28388, -0.2136, 1.14784], 11909),
    ([-4.00041, -3.49157, -3.14538, -2.76942, -2.02544], 20357),
    ([-1.97955, -1.15738, -0.44792, 0.4664, 2.0366], 8594),
]


def assert_quantiles(draws, quantiles, effective, false_alarm=1e-5):
    """Shares of draws below the other program's quantiles, errors of both counted."""
    own = effective_size(draws)
    error = np.sqrt(LEVELS * (1 - LEVELS) * (1 / own + 1 / effective))
    off = (np.mean(draws[..., None] <= quantiles, axis=(0, 1)) - LEVELS) / error
    assert np.abs(off).max() < stats.norm.isf(false_alarm / 2 / LEVELS.size), off


@pytest.mark.wide
def test_naive_bayes():
    # false-alarm rate 1e-5 for each of five shares
    posterior = draw(naive_bayes(CELLS, epsilon=1), draws=6000, tune=500)
    for i, (quantiles, effective) in enumerate(SHARES):
        assert_quantiles(posterior["p"].values[..., i], quantiles, effective)


@pytest.mark.wide
def test_regression():
    # false-alarm rate 1e-5 for each of three coefficients
    posterior = draw(regression(SUMS, epsilon=10, mean=MEAN), draws=8000)
    for i, (quantiles, effective) in enumerate(COEFFICIENTS):
        assert_quantiles(posterior["beta"].values[..., i], quantiles, effective)
