"""Reflections of coefficients: what they keep, as algebra."""

import numpy as np
import pytest

from pymc_dp.analyst.regression.gibbs_ss.reflections import draw_reflection

MEAN, COV = np.array([1.0, -0.5, 2.0]), np.diag([0.25, 0.36, 4.0]) + 0.1


def second_moments(mean, cov):
    """Of x and the intercept, which is the last."""
    features = np.append(mean, 1.0)
    return np.pad(cov, (0, 1)) + np.outer(features, features)


def drawn(moments, centred, times=200):
    rng = np.random.default_rng(1)
    return [draw_reflection(rng, moments, centred) for _ in range(times)]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_involutions_of_unit_determinant(d, centred):
    for reflection in drawn(second_moments(MEAN[:d], COV[:d, :d]), centred):
        np.testing.assert_allclose(reflection @ reflection, np.eye(d + 1), atol=1e-10)
        assert abs(np.linalg.det(reflection)) == pytest.approx(1)


def test_what_is_kept():
    """The mean response where it is centred; its mean square by all but single changed signs."""
    moments = second_moments(MEAN, COV)
    signs = 0
    for reflection in drawn(moments, True):
        np.testing.assert_allclose(moments[-1] @ reflection, moments[-1], atol=1e-12)
    for centred in (False, True):
        for reflection in drawn(moments, centred):
            kept = np.allclose(reflection.T @ moments @ reflection, moments)
            signs += not kept
            assert kept or np.array_equal(np.abs(np.diag(reflection)), np.ones(4))
    assert 40 < signs < 120  # one kind in five


def test_one_covariate_is_turned_about_its_mean():
    for reflection in drawn(second_moments(np.ones(1), 0.09 * np.eye(1)), True, 20):
        np.testing.assert_allclose(reflection, [[-1, 0], [2, 1]], atol=1e-12)


def test_one_response_product_alone_is_turned():
    """Among the reflections is one that changes a single entry of E[x y], and E[y] not at all."""
    moments = second_moments(MEAN, COV)
    changed = set()
    for reflection in drawn(moments, True):
        centred = moments @ reflection - moments
        centred -= np.outer(np.append(MEAN, 1.0), centred[-1])
        rows = np.abs(centred).max(axis=1) > 1e-9
        if rows.sum() == 1:
            changed.add(int(np.flatnonzero(rows)[0]))
    assert changed == {0, 1, 2}


@pytest.mark.parametrize("cov", [np.zeros((2, 2)), np.ones((2, 2)), np.diag([1.0, 0.0])])
def test_a_singular_metric_is_survived(cov):
    for centred in (False, True):
        for reflection in drawn(second_moments(np.ones(2), cov), centred, 50):
            np.testing.assert_allclose(reflection @ reflection, np.eye(3), atol=1e-9)


def test_units_do_not_matter():
    """Covariates of very different size: the same reflections in their units."""
    units = np.array([1e7, 1e-5, 1.0, 1.0])
    moments = second_moments(MEAN, COV)
    for one, other in zip(
        drawn(moments, True), drawn(moments * np.outer(units, units), True), strict=True
    ):
        assert abs(np.linalg.det(other)) == pytest.approx(1)
        np.testing.assert_allclose(other * units[:, None] / units, one, atol=1e-6)
