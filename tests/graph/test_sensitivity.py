"""Sensitivities derived from a statistic's graph, for both kinds of neighbouring tables."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph import sensitivity
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.sensitivity import Sensitivity, derive_sensitivity


def derived(statistic_of, **records):
    """Both sensitivities of a statistic of declared records."""
    with pm.Model() as model:
        made = {name: make(name) for name, make in records.items()}
        statistic = statistic_of(**made)
        pmdp.Privatized("r", statistic, pmdp.Laplace(scale=1.0))
    [block] = record_blocks(model, record_variables(model))
    [contribution] = block.contributions
    return [derive_sensitivity(contribution, block.records, r) for r in ("replace", "add_remove")]


def normal(shape):
    return lambda name: pm.Normal(name, 0, 1, shape=shape)


def bernoulli(shape):
    return lambda name: pm.Bernoulli(name, 0.5, shape=shape)


CASES = [
    # statistic, records, (l1, l2) replace, (l1, l2) add or remove, exact
    (lambda x: pmdp.clamp(x, -5, 3).sum(), {"x": normal(4)}, (8, 8), (5, 5), True),
    (lambda x: pmdp.clamp(x, 2, 3).sum(), {"x": normal(4)}, (1, 1), (3, 3), True),
    (
        lambda x: pmdp.clamp(x, -1, 1).sum(axis=0),
        {"x": normal((4, 3))},
        (6, np.sqrt(12)),
        (3, np.sqrt(3)),
        True,
    ),
    (
        lambda x: pt.stack([pmdp.clamp(x, 0, 1).sum(), (pmdp.clamp(x, 0, 1) ** 2).sum()]),
        {"x": normal(4)},
        (2, np.sqrt(2)),
        (2, np.sqrt(2)),
        False,
    ),
    (
        lambda x: pt.eq(x[:, None], np.arange(2)).sum(axis=0),
        {"x": bernoulli(4)},
        (2, np.sqrt(2)),
        (1, 1),
        True,
    ),
    # a record's weight may depend on which one it is
    (lambda x: (x * np.array([1.0, -3.0, 0.5])).sum(), {"x": bernoulli(3)}, (3, 3), (3, 3), True),
]


@pytest.mark.parametrize(("statistic", "records", "replace", "remove", "exact"), CASES)
def test_derived(statistic, records, replace, remove, exact):
    for found, expected in zip(derived(statistic, **records), (replace, remove), strict=True):
        assert isinstance(found, Sensitivity)
        assert (found.l1, found.l2) == pytest.approx(expected)
        assert found.exact is exact


def test_unbounded_records():
    assert "clamp" in derived(lambda x: x.sum(), x=normal(4))[0]


def declare(mechanism):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=10)
        pmdp.Privatized("r", pmdp.clamp(x, -5, 5).sum(), mechanism, observed=1.0)
    return model


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (pmdp.Laplace(epsilon=1, sensitivity=4), "less private than its guarantee"),
        (pmdp.Laplace(epsilon=1, sensitivity=5), "suffices for adding or removing"),
        (pmdp.Gaussian(rho=1, sensitivity=[4.0]), None),
        (pmdp.Laplace(epsilon=1, sensitivity=4).rounded(1), "less private"),
    ],
)
def test_too_small_a_declared_sensitivity_warns(mechanism, message):
    if message is None:
        with pytest.raises(ValueError, match="shape"):
            declare(mechanism)
        return
    with pytest.warns(pmdp.PrivacyWarning, match=message):
        model = declare(mechanism)
    with pytest.warns(pmdp.PrivacyWarning, match=message):
        pmdp.explain(model)


def test_enough_sensitivity_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pmdp.explain(declare(pmdp.Laplace(epsilon=1, sensitivity=10)))
        pmdp.explain(declare(pmdp.Laplace(scale=0.1)))


def test_an_upper_bound_is_no_reason_to_warn():
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("error")
        x = pm.Normal("x", 0, 1, shape=10)
        y = pmdp.clamp(x, -1, 1)
        both = pt.stack([y.sum(), (y**2).sum()])
        pmdp.Privatized("r", both, pmdp.Laplace(epsilon=1, sensitivity=2.0))
        assert "l1 at most 3" in repr(pmdp.explain(model))


def test_one_sensitivity_a_component():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=(10, 2))
        total = pmdp.clamp(x, 0, [1.0, 2.0]).sum(axis=0)
        pmdp.Privatized("fine", total, pmdp.Laplace(epsilon=1, sensitivity=[1.0, 2.0]))
        with pytest.warns(pmdp.PrivacyWarning, match="'short'"):
            pmdp.Privatized("short", total, pmdp.Laplace(epsilon=1, sensitivity=[1.0, 1.0]))


@pytest.mark.parametrize(
    ("statistic", "alike"),
    [
        (lambda x: pt.eq(x[:, None], np.arange(9)).sum(0), True),
        (lambda x: pt.as_tensor(np.arange(9.0) ** 2)[x].sum(), True),
        (lambda x: (x * np.full(30, 2.0)).sum(), False),
        (lambda x: (x * np.linspace(0, 1, 30)).sum(), False),
        (lambda x: (x * pt.arange(x.shape[0])).sum(), False),
        (lambda x: pt.eq(x, 7)[:1].sum(), False),
        (lambda x: pt.eq(x, 7)[4], False),
    ],
)
def test_records_that_are_alike_are_enumerated_together(monkeypatch, statistic, alike):
    records = {"x": lambda name: pm.Categorical(name, np.ones(9) / 9, shape=30)}
    asked = []
    proof = sensitivity.rows_are_alike
    monkeypatch.setattr(
        sensitivity, "rows_are_alike", lambda *args: asked.append(proof(*args)) or asked[-1]
    )
    found = derived(statistic, **records)
    assert asked[-1] == alike
    monkeypatch.setattr(sensitivity, "rows_are_alike", lambda *args: False)
    for quick, full in zip(found, derived(statistic, **records), strict=True):
        assert (quick.l1, quick.l2, quick.exact) == (full.l1, full.l2, full.exact)
        assert quick.l1 > 0


WEIGHTS = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0], [0.5, 0.0, 0.0]])


@pytest.mark.parametrize("n", [50, 1_000_000])
def test_matrix_products_of_many_records(n):
    clamped, _ = derived(lambda x: WEIGHTS @ pmdp.clamp(x, -1, 1).sum(axis=0), x=normal((n, 3)))
    assert isinstance(clamped, Sensitivity)
    np.testing.assert_allclose(clamped.components, [4, 4, 1])
    assert not clamped.exact

    workload = np.random.default_rng(1).normal(size=(4, 24))
    replace, remove = derived(
        lambda k: workload @ pt.eq(k[:, None], np.arange(24)).sum(axis=0),
        k=lambda name: pm.Categorical(name, np.ones(24) / 24, shape=n),
    )
    apart = np.abs(workload[:, :, None] - workload[:, None, :]).sum(axis=0).max()
    assert (replace.l1, remove.l1) == pytest.approx((apart, np.abs(workload).sum(axis=0).max()))
    assert replace.exact


def test_rows_that_are_not_alike_are_all_looked_at():
    n = 2000
    weight = np.ones(n)
    weight[1234] = 7.0
    position = [
        derived(lambda x: (pmdp.clamp(x, -1, 1) * weight).sum(), x=normal(n)),
        derived(lambda x: (pmdp.clamp(x, -1, 1) * (1 + pt.arange(n))).sum(), x=normal(n)),
        derived(lambda x: (x * weight).sum(), x=bernoulli(n)),
    ]
    assert [replace.l1 for replace, _ in position] == [14, 2 * n, 7]


def test_a_value_summed_twice_is_not_at_both_ends():
    found, _ = derived(lambda x: (pmdp.clamp(x, 0, 1)[:, None] * [1.0, -1.0]).sum(), x=normal(5))
    assert isinstance(found, Sensitivity)
    assert not found.exact


@pytest.mark.parametrize(
    ("make", "upper", "mechanism", "epsilon"),
    [
        (normal((10, 2)), [1.0, 10.0], pmdp.Laplace(scale=[2.0, 20.0]), 1.0),
        (normal((10, 3)), [1.0, 10.0, 33.0], pmdp.Laplace(scale=[2.0, 20.0, 165.0]), 1.2),
        (bernoulli((10, 2)), None, pmdp.DiscreteLaplace(scale=[2.0, 20.0]).clamped(lower=0), 1.0),
    ],
)
def test_noise_that_differs_between_components(make, upper, mechanism, epsilon):
    with pm.Model() as model:
        x = make("x")
        sums = (x * np.array([1, 10])) if upper is None else pmdp.clamp(x, 0, upper)
        pmdp.Privatized("r", sums.sum(axis=0), mechanism)
    [release] = pmdp.explain(model).releases
    assert release.sensitivity.guarantee(mechanism).epsilon == pytest.approx(epsilon)
    assert f"; so epsilon {epsilon:g}\n" in str(release)


def test_an_upper_bound_of_the_guarantee_is_called_so():
    mechanism = pmdp.Gaussian(sigma=[2.0, 20.0])
    with pm.Model() as model:
        y = pmdp.clamp(pm.Normal("x", 0, 1, shape=10), -1, 1)
        pmdp.Privatized("r", pt.stack([y.sum(), (y**2).sum()]), mechanism)
    [release] = pmdp.explain(model).releases
    assert release.sensitivity.guarantee(mechanism).rho == pytest.approx((1 + 0.05**2) / 2)
    assert "so at most rho 0.50125" in str(release)


VALUES = np.linspace(-6, 6, 1201)


@pytest.mark.parametrize(
    "contribution",
    [
        lambda x: pmdp.clamp(x, 0.9, 1.1).astype("int64"),  # nought and one
        lambda x: pmdp.clamp(x, -0.1, 0.1).astype("bool"),
        lambda x: pmdp.clamp(x, -1, 0).astype("uint8"),  # -1 becomes 255
        lambda x: (50 * pmdp.clamp(x, 0, 3)).astype("int8"),
        lambda x: pmdp.clamp(x, 0, 5).astype("int8") ** 4,
        lambda x: pmdp.clamp(x, 0.3, 2).astype("float32"),
        lambda x: pt.clip(x.astype("int8"), 0, 4),
    ],
)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_types_are_a_part_of_the_range(contribution, relation):
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=5)
    found = derive_sensitivity(contribution(x), [x], relation)
    slot = pt.dvector()
    seen = contribution(slot).astype("float64").eval({slot: VALUES}, mode=ONCE)
    true = np.ptp(seen) if relation == "replace" else np.abs(seen).max()
    assert isinstance(found, Sensitivity)
    assert found.l1 >= true * (1 - 1e-12)


@pytest.mark.parametrize(
    ("contribution", "operation"),
    [
        (lambda x: pmdp.clamp(x, -1, 2) ** -2, "Pow"),  # without bound at nought
        (lambda x: pmdp.clamp(x, -1, 2)[:, None] ** np.array([2, -2]), "Pow"),
        (lambda x: ~pmdp.clamp(x.astype("int64"), 0, 5), "Invert"),
        (lambda x: pmdp.clamp(x.astype("int64"), 0, 7) & 7, "AND"),
        (lambda x: pmdp.clamp(x.astype("int64"), 0, 7) | 8, "OR"),
        (lambda x: pt.arange(5.0)[pt.clip(x.astype("int64"), 0, 4)], "entries"),
    ],
)
def test_what_has_no_range_is_not_derived(contribution, operation):
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=5)
    found = derive_sensitivity(contribution(x), [x])
    assert isinstance(found, str)
    assert "no rule" in found
    assert operation in found


def test_a_range_that_wraps_around_is_an_upper_bound():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=5)
    powers = derive_sensitivity(pmdp.clamp(x, 0, 5).astype("int8") * np.int8(50), [x])
    assert isinstance(powers, Sensitivity)
    assert (powers.l1, powers.exact) == (255, False)
    whole = derive_sensitivity(pmdp.clamp(x, 0.9, 5.2).astype("int64"), [x])
    assert isinstance(whole, Sensitivity)
    assert (whole.l1, whole.exact) == (5, True)
