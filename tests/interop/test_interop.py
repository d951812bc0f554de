"""Mechanisms read from other libraries' objects and parameters."""

import math
from enum import Enum

import numpy as np
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.interop import (
    diffprivlib_release,
    from_diffprivlib,
    from_opendp,
    from_smartnoise,
    from_tumult,
    opendp_release,
)
from tests.mechanisms.chi_square import assert_follows, evaluate


@pytest.fixture
def dp():
    module = pytest.importorskip("opendp.prelude")
    module.enable_features("contrib")
    return module


def test_opendp_noise(dp):
    floats = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    ints = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    assert repr(from_opendp(dp.m.make_laplace(*floats, 2.5))) == "Laplace(scale=2.5)"
    assert repr(from_opendp(dp.m.make_gaussian(*floats, 2.5))) == "Gaussian(sigma=2.5)"
    assert repr(from_opendp(dp.m.make_laplace(*ints, 2.5))) == "DiscreteLaplace(scale=2.5)"
    integer = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    assert repr(from_opendp(dp.m.make_geometric(*integer, 2.5))) == "DiscreteLaplace(scale=2.5)"
    text = dp.serialize(dp.m.make_randomized_response(["a", "b", "c"], 0.75))
    assert repr(from_opendp(text)) == "RandomizedResponse(3, keep=0.75)"


def test_opendp_combinators_are_taken_off(dp):
    integer, real = dp.atom_domain(T=int), dp.atom_domain(T=float, nan=False)
    laplace = dp.m.make_laplace(integer, dp.absolute_distance(T=int), 2.5)
    gaussian = dp.m.make_gaussian(integer, dp.absolute_distance(T=float), 2.5)
    approximate = dp.c.make_zCDP_to_approxDP(gaussian)
    for made in (
        approximate,
        dp.c.make_fix_delta(approximate, 1e-6),
        dp.c.make_fixed_approxDP_to_approxDP(dp.c.make_fix_delta(approximate, 1e-6)),
        dp.m.make_noise(
            integer, dp.absolute_distance(T=float), dp.zero_concentrated_divergence(), 2.5
        ),
    ):
        assert repr(from_opendp(made)) == "DiscreteGaussian(sigma=2.5)"
        assert repr(from_opendp(dp.serialize(made))) == "DiscreteGaussian(sigma=2.5)"
    for made in (dp.c.make_pureDP_to_zCDP(laplace), dp.c.make_approximate(laplace)):
        assert repr(from_opendp(made)) == "DiscreteLaplace(scale=2.5)"
    noise = dp.m.make_noise(real, dp.absolute_distance(T=float), dp.max_divergence(), 2.5)
    assert repr(from_opendp(noise)) == "Laplace(scale=2.5)"
    assert repr(from_opendp(dp.c.make_composition([laplace, noise_of_integers(dp)]))) == (
        "[DiscreteLaplace(scale=2.5), DiscreteLaplace(scale=4.)]"
    )


def noise_of_integers(dp):
    integer = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    return dp.m.make_noise(*integer, dp.max_divergence(), 4.0)


def test_opendp_functions_afterwards(dp):
    dp.enable_features("honest-but-curious")
    real = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    laplace = dp.m.make_laplace(*real, 2.5)
    made = laplace >> math.floor
    read = from_opendp(made)
    assert repr(read) == "Laplace(scale=2.5).rounded(1, how='floor')"
    values = np.arange(-60, 61)  # false-alarm rate 1e-5
    assert_follows([made(3.3) for _ in range(2000)], values, evaluate(read.logp(values, 3.3)))
    with pytest.raises(ValueError, match="followed by <function"):
        from_opendp(laplace >> (lambda x: max(x, 0)))


def test_opendp_thresholds(dp):
    # false-alarm rate 1e-5 each; a key without records, c, is never there, and is not among these
    keys = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
    metric = dp.l01inf_distance(dp.absolute_distance(T=int))
    approximate = dp.approximate(dp.max_divergence())
    for made in (
        dp.m.make_laplace_threshold(keys, metric, 2.0, 5),
        dp.m.make_noise_threshold(keys, metric, approximate, 2.0, 5),
    ):
        released = made({str(i): 6 for i in range(3000)})
        read = opendp_release(
            made, released, "counts", keys=list(map(str, range(3000))), d_in=(1, 1, 1),
            neighbours="add_remove",
        )  # fmt: skip
        assert repr(read.mechanism) == "DiscreteLaplace(scale=2.).thresholded(5, dropped=nan)"
        assert (read.epsilon, read.delta) == (0.5, pytest.approx(0.0511, rel=0.01))
        values = np.append(np.arange(5, 60), -1)
        log_p = evaluate(read.mechanism.logp(values, 6))
        assert_follows(np.where(np.isnan(read.value), -1, read.value), values, log_p)
    with pytest.raises(ValueError, match="not in keys="):
        opendp_release(made, {"z": 9}, "counts", keys=["a"], d_in=(1, 1, 1))
    with pytest.raises(ValueError, match="keys= has 'z' more than once"):
        opendp_release(made, {"z": 9}, "counts", keys=["z", "a", "z"], d_in=(1, 1, 1))
    with pytest.raises(ValueError, match="write keys="):
        opendp_release(made, {"z": 9}, "counts", d_in=(1, 1, 1))


def test_opendp_queries_are_resolved(dp):
    context = dp.Context.compositor(
        data=[1.0, 2.0, 3.0] * 10,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=2,
        domain=dp.vector_domain(dp.atom_domain(T=float, nan=False)),
    )
    query = context.query().clamp((0.0, 5.0)).sum().laplace()
    read = opendp_release(query, query.release(), "sum")
    assert float(read.mechanism.noise) == pytest.approx(10)
    assert (read.epsilon, read.neighbours) == (pytest.approx(0.5), "add_remove")


def test_opendp_guarantees(dp):
    sized = dp.vector_domain(dp.atom_domain(T=int), size=30), dp.symmetric_distance()
    total = sized >> dp.t.then_clamp((0, 10)) >> dp.t.then_sum() >> dp.m.then_laplace(20.0)
    read = opendp_release(total, 140, "sum", d_in=2, n=30)
    assert (read.epsilon, read.neighbours, read.n) == (0.5, "substitute", 30)
    gaussian = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=float), 2.0)
    read = opendp_release(gaussian, 3, "count", neighbours="add_remove")
    assert (read.rho, read.provenance) == (0.125, {"tool": "OpenDP"})
    fixed = dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(gaussian), 1e-6)
    read = opendp_release(fixed, 3, "count", neighbours="add_remove")
    assert (read.epsilon, read.delta) == (pytest.approx(2.419, abs=1e-3), 1e-6)
    with pytest.raises(ValueError, match="make_fix_delta"):
        opendp_release(dp.c.make_zCDP_to_approxDP(gaussian), 3, "count", neighbours="add_remove")
    with pytest.raises(ValueError, match="neighbours is missing"):
        opendp_release(gaussian, 3, "count")
    both = dp.c.make_composition([gaussian, gaussian])
    first, second = opendp_release(both, [3, 4], "count", neighbours="add_remove")
    assert (first.value, second.value, first.rho) == (3, 4, 0.25)
    coin = dp.m.make_randomized_response(["a", "b", "c"], 0.6)
    read = opendp_release(coin, ["c", "a"], "answers")
    assert (read.value.tolist(), read.epsilon) == ([2, 0], pytest.approx(np.log(3)))
    coin = dp.m.make_randomized_response([1, 0], 0.6)  # category 1 has the number 0
    for made in (coin, dp.c.make_approximate(coin), dp.c.make_pureDP_to_zCDP(coin)):
        assert opendp_release(made, [1, 0, 0], "answers").value.tolist() == [0, 1, 1]
        text = dp.serialize(made)
        assert opendp_release(text, [1, 0, 0], "answers").value.tolist() == [0, 1, 1]
    both = opendp_release(dp.c.make_composition([coin, coin]), [1, 0], "answers")
    assert [each.value for each in both] == [0, 1]


def sum_of(dp, **size):
    """Sum of numbers in 5..10: one more changes it by 10, another one by 5 if the size is known."""
    table = dp.vector_domain(dp.atom_domain(T=int), **size), dp.symmetric_distance()
    return table >> dp.t.then_clamp((5, 10)) >> dp.t.then_sum() >> dp.m.then_laplace(20.0)


def test_opendp_neighbours_fit_the_metric(dp):
    total, sized = sum_of(dp), sum_of(dp, size=30)
    read = opendp_release(total, 4, "sum", neighbours="substitute", n=100)
    assert (read.epsilon, read.neighbours) == (1.0, "substitute")
    assert opendp_release(total, 4, "sum", neighbours="add_remove").epsilon == 0.5
    assert opendp_release(sized, 4, "sum", neighbours="substitute").epsilon == 0.25
    one = (
        (dp.vector_domain(dp.atom_domain(T=int), size=30), dp.change_one_distance())
        >> dp.t.then_metric_unbounded()
        >> dp.t.then_clamp((5, 10))
        >> dp.t.then_sum()
        >> dp.m.then_laplace(20.0)
    )
    read = opendp_release(one, 4, "sum")
    assert (read.epsilon, read.neighbours) == (0.25, "substitute")
    coin = dp.m.make_randomized_response(["a", "b", "c"], 0.6)
    for made, value, said, message in (
        (total, 4, {"d_in": 1, "neighbours": "substitute"}, "needs d_in=2"),
        (total, 4, {"d_in": 0}, "map is 0"),
        (sized, 4, {}, "map is 0"),
        (sized, 4, {"d_in": 1}, "map is 0"),
        (sized, 4, {"d_in": 2, "neighbours": "add_remove"}, "of a known size"),
        (one, 4, {"neighbours": "add_remove"}, "add_remove"),
        (coin, "a", {"neighbours": "add_remove"}, "DiscreteDistance"),
    ):
        with pytest.raises(ValueError, match=message):
            opendp_release(made, value, "sum", **said)


def test_opendp_noise_after_a_transformation(dp):
    total = dp.t.make_sum(dp.vector_domain(dp.atom_domain(bounds=(0, 10))), dp.symmetric_distance())
    chain = total >> dp.m.make_laplace(total.output_domain, total.output_metric, 3.0)
    assert repr(from_opendp(chain)) == "DiscreteLaplace(scale=3.)"


def test_opendp_draws_follow_the_mechanism(dp):
    # false-alarm rate 1e-5 each
    integers = dp.vector_domain(dp.atom_domain(T=int))
    values = np.arange(-100, 101)
    for made in (
        dp.m.make_laplace(integers, dp.l1_distance(T=int), 2.5),
        dp.m.make_gaussian(integers, dp.l2_distance(T=float), 2.5),
    ):
        log_p = evaluate(from_opendp(made).logp(values, 3))
        assert_follows(made([3] * 5000), values, log_p)
    coin = dp.m.make_randomized_response(["a", "b", "c"], 0.6)
    reports = np.array([ord(coin("b")) - ord("a") for _ in range(3000)])
    assert_follows(reports, range(3), evaluate(from_opendp(coin).logp([0, 1, 2], 1)))


@pytest.mark.parametrize("statistic", [0, 3, -2, 12])
def test_opendp_bounds_hold_for_statistic_and_release(dp, statistic):
    # false-alarm rate 1e-5 each
    integer = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    made = dp.m.make_geometric(*integer, 2.5, bounds=(0, 10))
    read = from_opendp(made)
    log_p = evaluate(read.logp(np.arange(11), statistic))
    assert_follows([made(statistic) for _ in range(3000)], range(11), log_p)


def test_opendp_integers_stop_at_the_ends_of_their_type(dp):
    # false-alarm rate 1e-5 for each of seven comparisons
    table = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    count = table >> dp.t.then_count(TO="u32") >> dp.m.then_laplace(2.0)
    read = opendp_release(count, count([]), "count").mechanism
    assert repr(read) == "DiscreteLaplace(scale=2.).clamped(lower=0)"
    assert repr(from_opendp(dp.serialize(count))) == repr(read)
    values = np.arange(80)
    assert_follows([count([]) for _ in range(3000)], values, evaluate(read.logp(values, 0)))
    for kind in ("u32", "u64"):
        vectors = dp.vector_domain(dp.atom_domain(T=kind))
        for made in (
            dp.m.make_gaussian(vectors, dp.l2_distance(T=float), 2.5),
            dp.m.make_geometric(vectors, dp.l1_distance(T=kind), 2.5),
        ):
            log_p = evaluate(from_opendp(made).logp(values, 1))
            assert_follows(made([1] * 3000), values, log_p)
    wide = dp.m.make_laplace(
        dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), 1e9
    )  # many draws at both ends
    read, drawn = from_opendp(wide), np.array(wide([10**9] * 3000))
    for end in (-(2**31), 2**31 - 1):
        chance = np.exp(evaluate(read.logp(end, 10**9)))
        assert stats.binomtest(int((drawn == end).sum()), 3000, float(chance)).pvalue > 1e-5
    assert drawn.min() >= read.lower
    assert drawn.max() <= read.upper


def test_opendp_thresholds_of_unsigned_counts(dp):
    # false-alarm rate 1e-5: what is below zero is dropped, not moved to zero and kept
    keys = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="u32"))
    metric = dp.l01inf_distance(dp.absolute_distance(T="u32"))
    made = dp.m.make_laplace_threshold(keys, metric, 2.0, 0)
    released = made({str(i): 1 for i in range(3000)})
    read = from_opendp(made)
    assert repr(read) == "DiscreteLaplace(scale=2.).thresholded(0, dropped=nan)"
    values = np.append(np.arange(60), -1)
    drawn = [released.get(str(i), -1) for i in range(3000)]
    assert_follows(drawn, values, evaluate(read.logp(values, 1)))


def test_opendp_types_without_a_law_are_refused(dp):
    real = dp.atom_domain(T="f32", nan=False), dp.absolute_distance(T="f32")
    with pytest.raises(ValueError, match=r"'f32'.*f64 \(T=float\)"):
        from_opendp(dp.m.make_laplace(*real, 2.0))
    whole = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    with pytest.raises(ValueError, match="larger units"):
        from_opendp(dp.m.make_laplace(*whole, 1e18))


def test_opendp_continuous_draws_follow_the_mechanism(dp):
    # false-alarm rate 1e-5 each
    floats = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=5000)
    for made, noise in (
        (dp.m.make_laplace(floats, dp.l1_distance(T=float), 2.5, k=-30), stats.laplace),
        (dp.m.make_gaussian(floats, dp.l2_distance(T=float), 2.5), stats.norm),
    ):
        scale = float(from_opendp(made).noise)
        assert stats.kstest(made([3.0] * 5000), noise(3, scale).cdf).pvalue > 1e-5


def test_opendp_coarse_grids_are_refused(dp):
    floats = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    for make in (dp.m.make_laplace, dp.m.make_gaussian):
        with pytest.raises(ValueError, match=r"multiples of 2\*\*-3"):
            from_opendp(make(*floats, 2.5, k=-3))


def test_opendp_refusals(dp):
    with pytest.raises(ValueError, match="make_laplace came with 'tail'"):
        from_opendp('{"__function__": "make_laplace", "__kwargs__": {"scale": 1.0, "tail": 3}}')
    with pytest.raises(TypeError, match="not an OpenDP measurement"):
        from_opendp(3)
    with pytest.raises(ValueError, match="'make_report_noisy_max'"):
        from_opendp('{"__function__": "make_report_noisy_max", "__kwargs__": {}}')
    with pytest.raises(ValueError, match="'scale'"):
        from_opendp('{"__function__": "make_laplace", "__kwargs__": {}}')


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("Laplace", {"epsilon": 0.5, "sensitivity": 2}, "Laplace(scale=4.)"),
        ("Geometric", {"epsilon": 0.5, "sensitivity": 1}, "DiscreteLaplace(scale=2.)"),
        (
            "LaplaceTruncated",
            {"epsilon": 1, "sensitivity": 2, "lower": 0, "upper": 9},
            "Laplace(scale=2.).clamped(lower=0, upper=9)",
        ),
        (
            "LaplaceFolded",
            {"epsilon": 1, "sensitivity": 2, "lower": 0, "upper": 9},
            "FoldedLaplace(scale=2., lower=0, upper=9)",
        ),
        (
            "GeometricFolded",
            {"epsilon": 0.5, "sensitivity": 1, "lower": 0.5, "upper": np.inf},
            "FoldedDiscreteLaplace(scale=2., lower=0.5, upper=inf)",
        ),
        (
            "GeometricFolded",
            {"epsilon": 0.5, "sensitivity": 1, "lower": -np.inf, "upper": np.inf},
            "DiscreteLaplace(scale=2.)",
        ),
        (
            "LaplaceBoundedDomain",  # the scale that diffprivlib 0.6.6 finds
            {"epsilon": 1, "delta": 0.1, "sensitivity": 1, "lower": 0, "upper": 10},
            "BoundedLaplace(scale=1.43174562, lower=0, upper=10)",
        ),
        (
            "Staircase",
            {"epsilon": 1, "sensitivity": 2.0},
            "Staircase(epsilon=1, sensitivity=2., gamma=0.377541)",
        ),
        ("GaussianDiscrete", {"scale": 3.0}, "DiscreteGaussian(sigma=3.)"),
        ("Binary", {"epsilon": np.log(3)}, "RandomizedResponse(2, keep=0.75)"),
    ],
)
def test_diffprivlib(name, parameters, expected):
    assert repr(from_diffprivlib(name, **parameters)) == expected


def test_diffprivlib_gaussians():
    given = {"epsilon": 0.5, "delta": 1e-5, "sensitivity": 2}
    classic = from_diffprivlib("Gaussian", **given)
    assert classic.noise == pytest.approx(2 * np.sqrt(2 * np.log(1.25e5)) / 0.5)
    assert from_diffprivlib("GaussianAnalytic", **given).noise < classic.noise
    with_delta = from_diffprivlib("Laplace", **given)
    assert with_delta.noise == pytest.approx(2 / (0.5 - np.log(1 - 1e-5)))


def diffprivlib_object(name, scale=None, **given):
    made = type(name, (), {})()
    vars(made).update(given, _scale=scale)
    return made


def test_diffprivlib_object():
    given = {"epsilon": 0.5, "delta": 0.0, "sensitivity": 2}
    made = diffprivlib_object("Laplace", **given)
    assert repr(from_diffprivlib(made)) == "Laplace(scale=4.)"
    assert repr(from_diffprivlib(made, epsilon=0.5)) == "Laplace(scale=4.)"
    for contradiction in ({"epsilon": 0.001}, {"delta": 0.1}):
        with pytest.raises(ValueError, match="leave it out"):
            from_diffprivlib(made, **contradiction)
    geometric = diffprivlib_object("Geometric", -0.25, **given)  # as it keeps its scale
    assert repr(from_diffprivlib(geometric)) == "DiscreteLaplace(scale=4.)"
    geometric.epsilon = 0.001
    with pytest.raises(ValueError, match="draws noise of scale 4, and its parameters say 2000"):
        from_diffprivlib(geometric)


def test_diffprivlib_charges_every_number():
    given = {"epsilon": 0.5, "delta": 0.0, "sensitivity": 1}
    made, told = diffprivlib_object("Geometric", -0.5, **given), {"neighbours": "add_remove"}
    assert diffprivlib_release(made, [3], "count", **told).epsilon == 0.5
    assert diffprivlib_release(made, [3] * 50, "counts", **told).epsilon == 25
    assert diffprivlib_release(made, [3] * 50, "counts", epsilon=0.5, **told).epsilon == 0.5
    made = diffprivlib_object("Staircase", **given, gamma=None)
    assert diffprivlib_release(made, [3.0, 1.0], "sums", **told).epsilon == 1
    made = diffprivlib_object("GaussianAnalytic", **{**given, "delta": 1e-6})
    read = diffprivlib_release(made, [3.0, 1.0], "sums", **told)
    assert (read.epsilon, read.delta) == (pytest.approx(1), pytest.approx(2e-6))
    made = diffprivlib_object("GaussianDiscrete", 3.0, **{**given, "delta": 1e-6})
    read = diffprivlib_release(made, [3, 1], "counts")  # no sensitivity is read, and no claim made
    assert (read.epsilon, read.rho) == (None, None)


class Noise(Enum):
    GEOMETRIC = 2
    LAPLACE = 3


def test_tumult():
    geometric = {"noise_mechanism": Noise.GEOMETRIC, "noise_parameter": 2}
    assert repr(from_tumult(geometric)) == "DiscreteLaplace(scale=2.)"
    gaussian = {"noise_mechanism": "GAUSSIAN", "noise_parameter": 9}
    assert repr(from_tumult(gaussian)) == "Gaussian(sigma=3.)"
    with pytest.raises(ValueError, match="'noise_parameter'"):
        from_tumult({"noise_mechanism": "LAPLACE"})
    assert repr(from_tumult([geometric])) == "DiscreteLaplace(scale=2.)"
    with pytest.raises(ValueError, match="made of 2 noisy numbers"):
        from_tumult([geometric, gaussian])
    with pytest.raises(ValueError, match="EXPONENTIAL"):
        from_tumult({"noise_mechanism": "EXPONENTIAL", "noise_parameter": 1})


#: how often smartnoise-sql 1.0.10 (opendp 0.14.2) released what, in 2000 queries
#: "SELECT COUNT(*) ..." of a table of so many rows, with epsilon .5 (and delta 1e-5)
SMARTNOISE_COUNTS = {
    "laplace": (
        1,
        False,
        {
            -12: 2,
            -11: 1,
            -10: 2,
            -9: 4,
            -8: 5,
            -7: 6,
            -6: 14,
            -5: 21,
            -4: 30,
            -3: 56,
            -2: 82,
            -1: 147,
            0: 626,
            1: 421,
            2: 240,
            3: 122,
            4: 91,
            5: 57,
            6: 30,
            7: 23,
            8: 9,
            9: 5,
            10: 3,
            11: 2,
            14: 1,
        },
    ),
    "laplace, clamp_counts": (
        2,
        True,
        {
            0: 624,
            1: 388,
            2: 414,
            3: 230,
            4: 170,
            5: 67,
            6: 42,
            7: 21,
            8: 19,
            9: 10,
            10: 3,
            11: 8,
            12: 2,
            13: 1,
            14: 1,
        },
    ),
}


@pytest.mark.parametrize("name", SMARTNOISE_COUNTS)
def test_smartnoise_counts(name):
    # false-alarm rate 1e-5 each
    rows, clamp_counts, counts = SMARTNOISE_COUNTS[name]
    noise = (
        {"scale": 7.667156018132338} if name == "gaussian" else {"epsilon": 0.5, "sensitivity": 1}
    )
    read = from_smartnoise(name.split(",")[0], column="int", clamp_counts=clamp_counts, **noise)
    values = np.arange(-80, 81)
    log_p = evaluate(read.logp(values, rows))
    assert_follows(np.repeat(list(counts), list(counts.values())), values, log_p)


@pytest.mark.parametrize(
    ("parameters", "scale"),  # as smartnoise-sql 1.0.10 with opendp 0.14.2 finds them
    [
        ({"epsilon": 0.5, "delta": 1e-5, "sensitivity": 1}, 7.667156018132338),
        ({"epsilon": 4, "delta": 1e-3, "sensitivity": 1}, 0.9040249405441292),
        ({"epsilon": 0.1, "delta": 1e-9, "sensitivity": 1}, 53.12862662835553),
        ({"epsilon": 1, "delta": 1e-6, "sensitivity": 2.5}, 13.592631477700593),
        ({"epsilon": 1, "delta": 1e-6, "sensitivity": 3, "max_contrib": 2}, 27.18526282880993),
    ],
)
def test_smartnoise_gaussian_by_its_guarantee(parameters, scale):
    read = from_smartnoise("gaussian", column="float", **parameters)
    assert float(read.noise) == pytest.approx(scale, rel=2e-5)


def test_smartnoise():
    class Laplace:
        def __init__(self):
            self.mechanism, self.scale = Noise.LAPLACE, 2.0
            self.epsilon, self.delta, self.sensitivity, self.max_contrib = 0.5, 0.0, None, 1
            self.lower, self.upper, self.bit_depth = 0, 1, 64

    assert repr(from_smartnoise(Laplace(), column="float")) == "Laplace(scale=2.)"
    whole = "Laplace(scale=2.).rounded(1, how='trunc')"
    assert repr(from_smartnoise(Laplace(), column="int")) == whole
    for name in ("geometric", "discrete_laplace"):
        assert repr(from_smartnoise(name, epsilon=0.5, sensitivity=1)) == whole
    assert isinstance(from_smartnoise("gaussian", column="float", scale=3.0), pmdp.Gaussian)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: from_smartnoise("laplace", epsilon=1, sensitivity=1), "column=None"),
        (lambda: from_smartnoise("laplace", column="count", scale=1), "column='count'"),
        (lambda: from_smartnoise("laplace", column="int", scale=1, censor_dims=True), "censor"),
        (lambda: from_smartnoise("gaussian", column="float", scale=1, clamp_counts=True), "clamp"),
        (lambda: from_smartnoise("discrete_gaussian", column="int", scale=1), "discrete_gaussian"),
        (lambda: from_diffprivlib("Geometric", epsilon=1, sensitivity=1, lower=0), "'lower'"),
        (lambda: from_diffprivlib("Snapping", epsilon=1, sensitivity=1), "Snapping"),
        (
            lambda: from_diffprivlib(
                "LaplaceBoundedDomain", epsilon=1, sensitivity=3, lower=0, upper=2
            ),
            "no wider than a finite",
        ),
        (lambda: from_tumult({"noise_mechanism": "LAPLACE", "threshold": 3}), "'threshold'"),
    ],
)
def test_what_is_not_understood_is_refused(read, message):
    with pytest.raises(ValueError, match=message):
        read()


def test_unbounded_truncation_is_none():
    given = {"epsilon": 0.5, "sensitivity": 1, "lower": -np.inf, "upper": np.inf}
    assert repr(from_diffprivlib("GeometricTruncated", **given)) == "DiscreteLaplace(scale=2.)"


@pytest.mark.parametrize(
    ("read", "missing"),
    [
        (lambda: from_diffprivlib("Laplace", epsilon=1), "sensitivity"),
        (lambda: from_diffprivlib("Gaussian", epsilon=1, sensitivity=1), "delta"),
        (lambda: from_diffprivlib("GaussianDiscrete", epsilon=1, sensitivity=1), "scale"),
        (lambda: from_diffprivlib("GeometricTruncated", epsilon=1, sensitivity=1), "lower"),
        (lambda: from_smartnoise("gaussian", column="float", epsilon=1), "delta"),
        (lambda: from_smartnoise("gaussian", column="float", sensitivity=1), "scale"),
        (lambda: from_smartnoise("laplace", column="float", epsilon=1), "sensitivity"),
    ],
)
def test_the_error_says_what_is_missing(read, missing):
    with pytest.raises(ValueError, match=f"'{missing}'"):
        read()
