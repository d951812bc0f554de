"""Which parameters reflect coefficients, and that the move of these is what it claims."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.regression.gibbs_ss.coefficient_reflections import reflections_of
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import LatentStatistics
from pymc_dp.analyst.regression.gibbs_ss.reflections import draw_reflection
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.layout import PointLayout
from pymc_dp.regression import NormalMoments


def vector():
    return pm.Normal("coef", [0.3, -0.2, 0.0], 2)


def two_parts():
    return pt.concatenate([pm.Laplace("slopes", 0, 2, shape=2), pm.Normal("a", 1, 3)[None]])


def hierarchy():
    mu, tau = pm.Normal("mu", 0, 2), pm.HalfNormal("tau", 1)
    return mu + tau * pm.Normal("z", 0, 1, shape=3)


def bounded():
    width = pm.HalfNormal("width", 9)
    slopes = pm.Uniform("slopes", -5 - width, 5 + width, shape=2)
    return pt.concatenate([slopes, pm.Normal("a", 1, 3, shape=1)])


def known_intercept():
    return pt.concatenate([pm.Normal("slopes", 0, 2, shape=2), np.array([0.7])])


def clipped():
    return pt.clip(pm.Normal("z", 0, 1, shape=3), -1e3, 1e3)


def curved():
    return pm.Normal("z", 0, 1, shape=3) ** 2


def found(coefficients, mean=None):
    with pm.Model() as model:
        coef = coefficients()
        mu = pm.Normal("mu_x", 0, 1, shape=2) if mean is None else mean(model)
        s = pmdp.RegressionStatistics(
            "s", n=50, coef=coef, sigma2=1.0, x_moments=NormalMoments(mu, np.eye(2) + 0.4)
        )
        pmdp.Privatized("r", s, pmdp.Gaussian(sigma=1.0), observed=np.ones(9))
    parameters = [rv for rv in model.free_RVs if rv is not s]
    options = {"mode": ONCE}
    point = model.initial_point()
    layout = PointLayout(model, parameters, [], point, options)
    latent = LatentStatistics(model, s, options)
    return layout, reflections_of(model, parameters, [latent], layout, point)


def moved_names(layout, reflect):
    return [n for n, where in layout.parameters.slices.items() if where.start in reflect.places]


@pytest.mark.parametrize(
    ("coefficients", "names"),
    [
        (vector, ["coef"]),
        (two_parts, ["slopes", "a"]),
        (hierarchy, ["z"]),
        (bounded, ["slopes_interval__", "a"]),
    ],
)
def test_reflected_and_back(coefficients, names):
    """The determinant, by which the ratio is corrected, is that of finite differences."""
    layout, [reflect] = found(coefficients)
    assert moved_names(layout, reflect) == names
    rng, given = np.random.default_rng(1), layout.start()[1]
    for centred in (False, True, True):
        theta = rng.normal(size=layout.size)
        read = reflect.read(theta, given)
        reflection = draw_reflection(rng, read[-1], centred)

        def move(theta, reflection=reflection):
            return reflect.reflected(theta, given, reflect.read(theta, given), reflection)

        turned, log_det = move(theta)
        again = reflect.read(turned, given)
        np.testing.assert_allclose(again[1], reflection @ read[1])
        np.testing.assert_array_equal(again[3], read[3])  # moments of x, by which it was drawn
        back, log_det_back = move(turned)
        np.testing.assert_allclose(back, theta, atol=1e-9)
        assert log_det_back == pytest.approx(-log_det)
        steps = 1e-5 * np.eye(layout.size)
        columns = [(move(theta + h)[0] - move(theta - h)[0]) / 2e-5 for h in steps]
        assert log_det == pytest.approx(np.linalg.slogdet(np.array(columns))[1], abs=1e-6)


def test_outside_of_the_support():
    layout, [reflect] = found(lambda: pm.HalfNormal("coef", 2, shape=3))
    theta = np.zeros(layout.size)
    read = reflect.read(theta, layout.start()[1])
    with np.errstate(invalid="ignore"):
        turned, log_det = reflect.reflected(theta, layout.start()[1], read, -np.eye(3))
    assert np.isnan(turned).any()
    assert np.isnan(log_det)  # compares as not accepted


def test_known_coefficients_stay():
    layout, [reflect] = found(known_intercept)
    theta = np.arange(1.0, 1 + layout.size)
    read = reflect.read(theta, layout.start()[1])
    slopes_alone = np.diag([-1.0, -1.0, 1.0])
    turned, log_det = reflect.reflected(theta, layout.start()[1], read, slopes_alone)
    assert log_det == 0
    np.testing.assert_allclose(reflect.read(turned, layout.start()[1])[1], slopes_alone @ read[1])
    assert reflect.reflected(theta, layout.start()[1], read, -np.eye(3))[1] == -np.inf


def test_affine_in_parts():
    """Linear where it was tried, and not where a move comes upon it: such moves are not made."""
    _, [reflect] = found(clipped)
    for first, possible in ((2.0, True), (1500.0, False)):
        theta = np.array([first, 1.0, -3.0, 0.0, 0.0])
        read = reflect.read(theta, layout.start()[1])
        log_det = reflect.reflected(theta, layout.start()[1], read, -np.diag([999.0, 1, 1]))[1]
        assert log_det == -np.inf
        assert (reflect.reflected(theta, layout.start()[1], read, -np.eye(3))[1] == 0) == possible


def test_several_holders():
    """Common coefficients are reflected once, in moments pooled by the numbers of records."""
    with pm.Model() as model:
        common = pm.Normal("common", 0, 1, shape=2)
        spread, own = pm.HalfNormal("spread", 1), pm.Normal("own", 0, 1, shape=(2, 2))
        statistics = []
        for j, (n, mean) in enumerate([(10, 0.0), (30, 1.0), (5, 2.0), (5, 3.0)]):
            coef = common if j < 2 else common + spread * own[j - 2]
            moments = NormalMoments(mean, 1.0)
            s = pmdp.RegressionStatistics(f"s{j}", n, coef, sigma2=1.0, x_moments=moments)
            pmdp.Privatized(f"r{j}", s, pmdp.Gaussian(sigma=1.0), observed=np.ones(5))
            statistics.append(s)
    parameters, point = [common, spread, own], model.initial_point()
    layout = PointLayout(model, parameters, [], point, {"mode": ONCE})
    latents = [LatentStatistics(model, s, {"mode": ONCE}) for s in statistics]
    reflections = reflections_of(model, parameters, latents, layout, point)
    names = [moved_names(layout, reflect) for reflect in reflections]
    assert [name for [name] in names] == ["common", "own", "own"]
    theta = np.arange(1.0, 1 + layout.size)
    pooled = reflections[0].read(theta, layout.start()[1])[-1]
    np.testing.assert_allclose(pooled, [[1.75, 0.75], [0.75, 1.0]])
    # the third holder's coefficients move by its own deviations alone
    third = reflections[1]
    turned, _ = third.reflected(theta, layout.start()[1], third.read(theta, layout.start()[1]), -np.eye(2))
    assert np.flatnonzero(turned != theta).tolist() == [3, 4]


def test_what_cannot_be_reflected_is_left_alone():
    """Coefficients that are not linear in a parameter, or share it with the moments of x."""
    assert found(curved)[1] == []
    assert found(vector, mean=lambda model: model["coef"][:2] + 1)[1] == []


@pytest.mark.parametrize(("log_det", "moves"), [(-1e3, 0.0), (1e3, 3.0)])
def test_the_determinant_enters_the_ratio(monkeypatch, log_det, moves):
    layout, [reflect] = found(bounded)
    start, given = np.zeros(layout.size), layout.start()[1]
    monkeypatch.setattr(reflect, "reflected", lambda theta, *rest: (theta + 1, log_det))

    def density(theta, given):
        return [-100.0 * theta[0]]

    end, log_density = reflect.move(np.random.default_rng(1), start, given, 0.0, density)
    np.testing.assert_array_equal(end, start + moves)
    assert log_density == -100.0 * moves
