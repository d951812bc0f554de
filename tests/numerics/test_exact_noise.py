"""Noise in integer arithmetic: every choice enumerated, exact laws, no floats, no lost words."""

import math
from fractions import Fraction

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_dp.numerics import entropy, exact_noise
from pymc_dp.numerics.entropy import system_discrete_gaussian, system_discrete_laplace
from pymc_dp.numerics.exact_noise import LARGEST_GAUSSIAN, fill
from tests.mechanisms.chi_square import FALSE_ALARM, assert_follows

NEAR = np.arange(-300, 301)


def draws(scale, size, seed, gaussian=True):
    words = np.random.default_rng(seed).integers(2**64, size=40 * size + 500, dtype=np.uint64)
    out = np.empty(size, dtype=np.int64)
    fill(out, np.uint64(scale), gaussian, words, np.zeros(3, dtype=np.int64))
    return out


def log_gaussian(k, scale):
    everywhere = np.arange(-40 * scale, 40 * scale + 1)
    return -0.5 * (k / scale) ** 2 - np.log(np.exp(-0.5 * (everywhere / scale) ** 2).sum())


class MoreChoicesError(Exception):
    pass


@pytest.fixture
def probabilities(monkeypatch):
    """Probability of every result of a function, and what is left, by following all choices."""
    script = []

    def choose(number, words, place):
        if place[0] == len(script):
            raise MoreChoicesError(int(number))
        place[0] += 1
        return np.uint64(script[place[0] - 1])

    monkeypatch.setattr(exact_noise, "below", choose)
    for name in ("_exp_minus", "_laplace", "_kept"):
        monkeypatch.setattr(exact_noise, name, getattr(exact_noise, name).py_func)

    def follow(function, *numbers, depth):
        nonlocal script
        found, left, paths = {}, Fraction(0), [([], Fraction(1))]
        while paths:
            script, weight = paths.pop()
            try:
                result = function(*map(np.uint64, numbers), None, [0])
                found[result] = found.get(result, Fraction(0)) + weight
            except MoreChoicesError as more:
                (number,) = more.args
                if len(script) == depth:
                    left += weight
                else:
                    paths += [([*script, i], weight / number) for i in range(number)]
        return found, left

    return follow


@pytest.mark.parametrize("scale", [1, 2, 3])
@pytest.mark.parametrize("c", [1, 2])
def test_all_choices_of_an_exponential_coin(probabilities, scale, c):
    for a in range(scale + 1):
        for b in range(a + 1):
            found, left = probabilities(exact_noise._exp_minus, a, b, c, scale, depth=8)
            p = math.exp(-a * b / scale**2 / c)
            assert found.get(True, 0) <= p + 1e-15
            assert found.get(False, 0) <= 1 - p + 1e-15
            assert left < 0.02  # what is not yet decided


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_all_choices_of_acceptance(probabilities, scale):
    for v in range(4):
        for u in range(scale):
            found, left = probabilities(exact_noise._kept, u, v, scale, depth=9)
            p = math.exp(-((u + (v - 1) * scale) ** 2) / (2 * scale**2))
            assert found.get(True, 0) <= p + 1e-15
            assert found.get(False, 0) <= 1 - p + 1e-15
            assert left < 0.1


@pytest.mark.parametrize("number", [1, 2, 3, 10, 2**32 + 1, 2**55 + 3, 2**63, 2**63 + 1])
def test_uniform_integers_come_in_whole_rounds(number):
    first = 2**64 % number  # the words before it are passed over
    assert (2**64 - first) % number == 0
    for word in {0, first - 1, first, first + 1, number - 1, number, 2**64 - 1} - {-1, 2**64}:
        words, place = np.array([word, 2**64 - 1], dtype=np.uint64), np.zeros(3, dtype=np.int64)
        used = word if word >= first else 2**64 - 1
        assert exact_noise.below(np.uint64(number), words, place) == used % number
        assert place[0] == (1 if word >= first else 2)


@pytest.mark.parametrize("scale", [1, 2, 3, 10])
def test_small_scales_follow_the_exact_law(scale):
    # false alarm 1e-5, fixed seed
    assert_follows(draws(scale, 200_000, seed=scale), NEAR, log_gaussian(NEAR, scale))


def test_discrete_laplace_follows_the_exact_law():
    log_p = np.log(np.tanh(1 / 6)) - np.abs(NEAR) / 3
    assert_follows(draws(3, 200_000, seed=5, gaussian=False), NEAR, log_p)


@pytest.mark.parametrize("scale", [2**21 + 3, 2**33, LARGEST_GAUSSIAN])
def test_large_scales_follow_the_normal_law_far_out(scale):
    # a million draws in bins up to 4.5 standard deviations; false alarm 1e-5, fixed seed
    edges = np.arange(-4.5, 4.6, 0.25)
    z = draws(scale, 10**6, seed=8) / scale
    counts = np.bincount(np.digitize(z, edges), minlength=edges.size + 1)
    p = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], edges, [np.inf]])))
    often = 10**6 * p > 3
    statistic = ((counts - 10**6 * p) ** 2 / (10**6 * p))[often].sum()
    assert stats.chi2.sf(statistic, often.sum() - 1) > FALSE_ALARM


@pytest.mark.parametrize("scale", [2**33, 2**46 + 2, LARGEST_GAUSSIAN])
def test_low_bits_are_fair(scale):
    low = draws(scale, 10**6, seed=9) % 16  # false alarm 1e-5, fixed seed
    assert_follows(low, np.arange(16), np.full(16, -np.log(16)))


def test_no_float_enters():
    compiled = numba.njit(error_model="numpy")(fill.py_func)
    arrays = numba.types.uint64[::1], numba.types.int64[::1]
    signature = (arrays[1], numba.types.uint64, numba.types.boolean, *arrays)
    compiled.compile(tuple(signature))
    code = compiled.inspect_llvm(signature)
    assert "urem i64" in code  # the functions it calls are in there
    for kind in ("double", "float", "uitofp", "sitofp"):
        assert f" {kind} " not in code, kind


def test_running_out_of_words_changes_nothing(monkeypatch):
    words = np.random.default_rng(3).integers(2**64, size=10**6, dtype=np.uint64)
    out = np.empty(2000, dtype=np.int64)
    fill(out, np.uint64(2**40), True, words, np.zeros(3, dtype=np.int64))
    handed = 0

    def few_words(number):
        nonlocal handed
        number = min(number, 7)
        handed += number
        return words[handed - number : handed].copy()

    monkeypatch.setattr(entropy, "_system_words", few_words)
    np.testing.assert_array_equal(system_discrete_gaussian(2**40, 2000), out)


@pytest.mark.parametrize("scale", [0, -1, LARGEST_GAUSSIAN + 1])
def test_scales_out_of_range_are_refused(scale):
    with pytest.raises(ValueError, match="scale must be a whole number"):
        system_discrete_gaussian(scale, 1)
    with pytest.raises(ValueError, match="scale must be a whole number"):
        system_discrete_laplace(scale, 1)
