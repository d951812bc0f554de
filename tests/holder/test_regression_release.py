"""Holders' releases: clipping, sensitivity, noise, JSON; and the quick answers made of them."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.regression import (
    BoxBounds,
    NormBounds,
    RegressionRelease,
    adassp,
    averaged_sensitivity,
    fixed_s,
    fixed_s_fast,
    norm_sensitivity,
    regression_release,
)

RNG = np.random.default_rng(1)
X = RNG.normal(0, 0.35, (400, 2))
Y = X @ [1.0, -0.5] + RNG.normal(0, 0.3, 400)
BOUNDS = NormBounds(x_norm=1.0, y_bound=1.5)
PARTS = ("xx", "xy")
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")


def unique(row):
    """Unique entries of x x', and x y, of one row (x, y)."""
    x, y = row[:-1], row[-1]
    return np.concatenate([np.outer(x, x)[np.triu_indices(len(x))], x * y])


def test_release_survives_json():
    release = regression_release(X, Y, BOUNDS, 1, 1e-4, smallest_eigenvalue=True)
    text = release.to_json()
    assert RegressionRelease.from_json(text) == release
    assert pmdp.read_release(text) == release
    assert json.loads(text)["bounds"] == {"x_norm": 1.0, "y_bound": 1.5}
    assert "records out of bounds" in str(release)


def test_bounds_of_any_type_survive_json():
    bounds = BoxBounds(x=(np.zeros(2), (1, np.int64(2))), y=(np.float32(-1), 1))
    release = regression_release(X, Y, bounds, 1, 1e-4)
    assert RegressionRelease.from_json(release.to_json()) == release
    assert release.bounds == {"x": [[0.0, 0.0], [1.0, 2.0]], "y": [-1.0, 1.0]}


def test_what_is_sent_holds_nothing_exact():
    """Everything that depends on a record's values differs between two releases of one table."""
    wild = 3 * X  # many out of bounds
    one, two = (
        json.loads(regression_release(wild, Y, BOUNDS, 1, 1e-4, smallest_eigenvalue=True).to_json())
        for _ in range(2)
    )
    assert not set(one.pop("value")) & set(two.pop("value"))
    for noised in ("clipped", "smallest_eigenvalue"):
        first, second = one["details"].pop(noised), two["details"].pop(noised)
        assert first != second or first == second == 0.0  # a bound may be zero twice
    assert one == two
    assert set(one["details"]) == {
        "n_covariates", "intercept", "noise", "noise_sd", "average", "clipped_sd",
    }  # fmt: skip
    empty = regression_release(X[:0], Y[:0], BOUNDS, 1, 1e-4, neighbours="add_remove")
    assert empty.n >= 1  # a table of no records is a neighbour of one record, and is released too


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
def test_noise_is_the_analytic_one(neighbours):
    release = regression_release(X, Y, BOUNDS, 1, 1e-4, neighbours=neighbours)
    counts = 1 if neighbours == "substitute" else 2
    l2 = norm_sensitivity(1, 1.5, n_covariates=2, neighbours=neighbours, parts=PARTS).l2
    sigma = pmdp.Gaussian(epsilon=1, delta=1e-4, sensitivity=l2 * np.sqrt(1 + 0.01 * counts)).noise
    assert release.mechanism.noise == pytest.approx(np.full(5, float(sigma)))
    # everything that leaves, counts included, is within the guarantee
    sd = np.array([*release.noise_sd, *[release.clipped_sd] * counts])
    per_unit = np.concatenate([[l2 / release.noise_sd[0]], 1 / sd[5:]])
    spent = pmdp.Gaussian(sigma=1).guarantee(sensitivity=float(np.linalg.norm(per_unit)))
    assert spent.epsilon_at(1e-4) == pytest.approx(1, rel=1e-6)


def test_released_values_have_this_noise():
    """Standardised noise of 100 releases; false-alarm rate 1e-5."""
    exact = pmdp.regression_statistics(*BOUNDS.clip(X, Y), intercept=False, parts=PARTS)
    found = []
    for _ in range(100):
        release = regression_release(X, Y, BOUNDS, 1, 1e-4)
        found.append((np.array(release.released) - exact) / release.noise_sd)
    assert stats.kstest(np.ravel(found), "norm").pvalue > 1e-5


def test_laplace_noise_without_delta():
    release = regression_release(X, Y, BOUNDS, 1, 0.0)
    l1 = norm_sensitivity(1, 1.5, n_covariates=2, parts=PARTS).l1
    assert isinstance(release.mechanism, pmdp.Laplace)
    assert release.mechanism.noise == pytest.approx(np.full(5, 1.01 * l1))
    assert 1.01 * l1 / release.mechanism.noise[0] == pytest.approx(1)
    spent = l1 / release.mechanism.noise[0] + np.sqrt(2) / release.clipped_sd
    assert spent == pytest.approx(1)


@pytest.mark.parametrize("bounds", [BOUNDS, BoxBounds(x=(-0.5, 0.5), y=(-1.0, 1.0))])
def test_values_out_of_bounds_are_clipped_and_counted(bounds):
    wild = X.copy()
    wild[:50] *= 1e6
    tame = regression_release(wild, Y, bounds, 1e6, 1e-4)
    clipped_X, clipped_y = bounds.clip(wild, Y)
    assert np.all(np.linalg.norm(clipped_X, axis=1) <= 1 + 1e-12)
    changed = np.any(clipped_X != wild, axis=1) | (clipped_y != Y)
    assert tame.clipped == pytest.approx(changed.sum(), abs=1)
    exact = pmdp.regression_statistics(clipped_X, clipped_y, intercept=False, parts=PARTS)
    np.testing.assert_allclose(tame.released, exact, atol=0.1)


def test_number_of_records_is_noisy_where_it_is_confidential():
    numbers = {
        regression_release(X, Y, BOUNDS, 1, 1e-4, neighbours="add_remove").n for _ in range(9)
    }
    assert len(numbers) > 1
    assert regression_release(X, Y, BOUNDS, 1, 1e-4).n == 400


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_averaged_rows_never_move_more_than_said(neighbours, k):
    rng = np.random.default_rng(k)
    bound = averaged_sensitivity(1, 0.8, k, n_covariates=2, neighbours=neighbours)
    largest = 0.0
    for _ in range(600):
        rows = rng.standard_normal((k + 1, 3))
        rows[:, :2] /= np.linalg.norm(rows[:, :2], axis=1, keepdims=True)
        rows[:, 2] = 0.8 * rng.choice([-1, 1], k + 1)
        if rng.random() < 0.5:  # all along one direction
            rows[:k] = rows[0]
            rows[k] = -rows[0] if rng.random() < 0.5 else rows[k]
        before = unique(rows[:k].sum(0) / np.sqrt(k))
        other = rows[k] if neighbours == "substitute" else 0
        after = unique((rows[1:k].sum(0) + other) / np.sqrt(k))
        largest = max(largest, np.linalg.norm(before - after))
        assert np.abs(before - after).sum() <= bound.l1 + 1e-9
    assert largest <= bound.l2 + 1e-9
    assert largest > 0.9 * bound.l2 or neighbours == "substitute"


def test_averaging_keeps_the_regression():
    release = regression_release(X, Y, BOUNDS, 1e6, 1e-4, average=7)
    assert release.n == 400 // 7
    S, z, _ = release.layout.unpack(release.released, release.n)
    np.testing.assert_allclose(np.linalg.solve(S, z), [1, -0.5], atol=0.25)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"bounds": (1, 1.5)}, TypeError, "NormBounds"),
        ({"X": X[:, 0]}, ValueError, r"write \(n, d\) and \(n,\)"),
        ({"y": np.full(400, np.nan)}, ValueError, "incomplete records"),
        ({"average": 3, "intercept": True}, ValueError, "NormBounds, no intercept"),
        ({"average": 3, "neighbours": "add_remove"}, ValueError, "all later ones would move"),
        ({"average": 401}, ValueError, "at least so many records"),
        ({"delta": -0.1}, ValueError, "delta must be 0"),
        ({"bounds": BoxBounds(x=(np.zeros(3), 1), y=(-1, 1))}, ValueError, "3 covariates"),
        ({"average": 0.5}, ValueError, "whole number"),
        ({"neighbours": "replace"}, ValueError, '"substitute" or "add_remove"'),
        ({"smallest_eigenvalue": True, "intercept": True}, ValueError, "smallest_eigenvalue"),
    ],
)
def test_bad_input_is_explained(change, error, message):
    arguments = {"X": X, "y": Y, "bounds": BOUNDS, "epsilon": 1, "delta": 1e-4} | change
    with pytest.raises(error, match=message):
        regression_release(**arguments)


def made(S, z, sd, n=400):
    """A release with known numbers."""
    S = np.asarray(S, float)
    d = len(S)
    entries = [*S[np.triu_indices(d)], *z]
    bounds = {"x_norm": 0.1, "y_bound": 0.1}
    rest = {"epsilon": 1, "delta": 1e-4, "neighbours": "substitute", "bounds": bounds, "average": 1}
    return RegressionRelease(
        [float(e) for e in entries],
        n,
        d,
        False,
        "gaussian",
        [sd] * len(entries),
        **rest,
        clipped=0.0,
        clipped_sd=40.0,
    )


def test_fixed_s_fast_in_closed_form():
    S = np.array([[50.0, 5.0], [5.0, 40.0]])
    releases = [made(S, [45.0, -20.0], 6.0), made(2 * S, [110.0, -30.0], 9.0)]
    C = np.diag([4.0, 1.0])
    idata = fixed_s_fast(releases, coef_mean=[0.5, 0.0], coef_cov=C, sigma2=0.3, draws=20)
    precision, shift = np.linalg.inv(C), np.linalg.inv(C) @ [0.5, 0]
    for r, matrix, z in zip(releases, (S, 2 * S), ([45, -20], [110, -30]), strict=True):
        V = np.linalg.inv(0.3 * matrix + r.noise_sd[0] ** 2 * np.eye(2))
        precision, shift = precision + matrix @ V @ matrix, shift + matrix @ V @ z
    mean = np.linalg.solve(precision, shift)
    np.testing.assert_allclose(idata.posterior.attrs["mean"], mean)
    np.testing.assert_allclose(idata.posterior.attrs["cov"], np.linalg.inv(precision))
    assert "approximation" in idata.posterior.attrs


def test_fixed_s_agrees_with_quadrature():
    """False-alarm rate below 1e-4 (independent chains, 4.5 standard errors of the mean)."""
    release = made([[50.0]], [45.0], 6.0)
    kwargs = {"coef_cov": [[4.0]], "sigma2_shape": 3, "sigma2_scale": 2.0}
    idata = fixed_s([release], draws=2000, random_seed=1, **kwargs)
    t, v = np.meshgrid(np.linspace(-4, 6, 801), np.exp(np.linspace(-4, 5, 601)), indexing="ij")
    variance = v * 50 + 36
    log_p = -(t**2) / 8 - 3 * np.log(v) - 2 / v - 0.5 * np.log(variance)
    log_p -= (45 - 50 * t) ** 2 / (2 * variance)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    coef = idata.posterior.coef.to_numpy()[..., 0]
    error = coef.std() / np.sqrt(2000)  # at least a quarter of the draws are worth one each
    assert abs(coef.mean() - (p * t).sum()) < 4.5 * error
    logs = np.log(idata.posterior.sigma2.to_numpy())
    assert abs(logs.mean() - (p * np.log(v)).sum()) < 4.5 * logs.std() / np.sqrt(2000)


def test_matrices_that_are_not_positive_are_projected():
    release = made([[1.0, 2.0], [2.0, 1.0]], [1.0, 1.0], 0.5)  # nearest: all entries 1.5
    idata = fixed_s_fast([release], coef_cov=np.eye(2), sigma2=1.0, draws=1)
    V = np.linalg.inv(np.full((2, 2), 1.5) + 0.25 * np.eye(2))
    precision = np.eye(2) + np.full((2, 2), 1.5) @ V @ np.full((2, 2), 1.5)
    np.testing.assert_allclose(np.linalg.inv(idata.posterior.attrs["cov"]), precision)


def test_adassp_is_least_squares_without_noise():
    releases = [
        regression_release(
            X[k::2], Y[k::2], NormBounds(10, 10), 1e7, 1e-4, smallest_eigenvalue=True
        )
        for k in range(2)
    ]
    np.testing.assert_allclose(adassp(releases), np.linalg.lstsq(X, Y, rcond=None)[0], atol=0.01)


def test_bad_releases_are_explained():
    good, other = made(np.eye(2), [1.0, 1.0], 1.0), made(np.eye(3), [1.0, 1.0, 1.0], 1.0)
    with pytest.raises(ValueError, match="release 1 has 3 features"):
        fixed_s_fast([good, other], coef_cov=np.eye(2), sigma2=1.0)
    with pytest.raises(ValueError, match="covariance matrix"):
        fixed_s_fast([good], coef_cov=2.0, sigma2=1.0)
    with pytest.raises(ValueError, match="smallest_eigenvalue=True"):
        adassp([good])
    with pytest.raises(ValueError, match="No releases"):
        adassp([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": [1.0]}, "value: .* has noise of shape"),
        ({"value": [1.0, 2.0, 3.0, 4.0, None]}, "value: "),
        ({"noise_sd": [-1.0] * 5}, "details: noise_sd must be positive"),
        ({"noise_sd": [2.0] * 5}, "mechanism: it contradicts details"),
        ({"n": {"value": "many", "mechanism": None}}, "n must be a number"),
        ({"n": {"value": 0.5, "mechanism": None}}, "n: it must be a number of records"),
        ({"n": None}, "n and bounds of a RegressionRelease must not be null"),
        ({"noise": "uniform"}, '"gaussian" or "laplace"'),
        ({"bounds": {"x_norm": 9.0, "y_bound": 1.0}}, "its noise is too small"),
        ({"colour": "red"}, "the release has a field 'colour'"),
        ({"bounds": {}}, "bounds: {} are neither"),
        ({"clipped_sd": 1e-6}, "guarantee: clipped_sd is 1e-06, and epsilon 1"),
        ({"clipped_sd": -1}, "details: clipped_sd must be positive"),
        ({"clipped": True}, "details: clipped must be a finite number"),
        ({"clipped": None}, "details: clipped must be"),
        ({"clipped": "<b>"}, "details: clipped must be"),
        ({"smallest_eigenvalue": "0"}, "details: smallest_eigenvalue must be"),
        ({"n_covariates": 30_000}, "details: released must be 450045000 finite numbers"),
        ({"n_covariates": 1.5}, "details: n_covariates must be a whole number"),
        ({"n_covariates": 10**20}, "details: n_covariates must be a whole number"),
        ({"average": 10**400}, "details: it has a number of 1329 bits"),
        ({"average": 10**12}, "guarantee: "),
        ({"intercept": 1}, "details: intercept must be true or false"),
        ({"noise": "laplace"}, "laplace noise with delta 0.0001"),
    ],
)
def test_bad_letters_are_explained(change, message):
    letter = json.loads(made(np.eye(2), [1.0, 1.0], 1.0).to_json())
    details = letter["details"]
    letter["details"] = details | {name: each for name, each in change.items() if name in details}
    letter |= {name: each for name, each in change.items() if name not in details}
    with pytest.raises(ValueError, match=message):
        RegressionRelease.from_json(json.dumps(letter))
    with pytest.raises(ValueError, match="not the JSON"):
        RegressionRelease.from_json("dear analyst")


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
@pytest.mark.parametrize("delta", [1e-4, 0])
def test_less_noise_anywhere_is_recognised(delta, neighbours):
    """Every number of a real release, its document changed everywhere alike."""
    release = regression_release(X, Y, BOUNDS, 1, delta, neighbours=neighbours)
    small = [{"noise_sd": [*release.noise_sd[:i], sd, *release.noise_sd[i + 1 :]]}
             for i in (0, 4) for sd in (1e-9, release.noise_sd[i] * 0.999)]  # fmt: skip
    small += [{"clipped_sd": sd} for sd in (1e-9, release.clipped_sd * 0.999)]
    small += [{"smallest_eigenvalue": 3.0}]  # which a third of epsilon was not spent on
    for change in small:
        with pytest.raises(ValueError, match=r"noise is too small|smallest_eigenvalue needs"):
            dataclasses.replace(release, **change).to_json()
    more = dataclasses.replace(release, noise_sd=[2 * sd for sd in release.noise_sd])
    assert RegressionRelease.from_json(more.to_json()) == more


@pytest.mark.parametrize("delta", [1e-5, 0])
@pytest.mark.parametrize("eigenvalue", [False, True])
def test_a_release_is_charged_to_a_budget(delta, eigenvalue, recwarn):
    if eigenvalue and not delta:
        pytest.skip("needs Gaussian noise")
    X, y = np.full((20, 2), 0.1), np.zeros(20)
    bounds = pmdp.regression.NormBounds(x_norm=1.0, y_bound=1.0)
    budget = pmdp.PrivacyBudget(epsilon=1, delta=1e-5)
    kwargs = {"budget": budget, "smallest_eigenvalue": eigenvalue}
    pmdp.regression_release(X, y, bounds, 0.8, delta, **kwargs)
    # exactly what was asked for, or less where Gaussian parts compose better than by addition
    assert 0.8 * (0.6 if eigenvalue else 1 - 1e-6) < budget.spent <= 0.8 * (1 + 1e-9)
    assert len(budget.claims()) == 1 + eigenvalue
    if eigenvalue:  # which leaves room for another
        pmdp.regression_release(X, y, bounds, 0.8, delta, **kwargs)
    before = budget.claims()
    with pytest.raises(pmdp.PrivacyError, match="regression release"):
        pmdp.regression_release(X, y, bounds, 0.8, delta, **kwargs)
    assert budget.claims() == before


def test_neighbours_of_release_and_budget_are_the_same():
    bounds = pmdp.regression.NormBounds(x_norm=1.0, y_bound=1.0)
    budget = pmdp.PrivacyBudget(epsilon=1, delta=1e-5, neighbours="add_remove")
    with pytest.raises(ValueError, match="neighbours='add_remove'"):
        pmdp.regression_release(np.zeros((5, 1)), np.zeros(5), bounds, 1, 1e-5, budget=budget)
    assert budget.claims() == []
