"""The likelihood's graph is that of the model as written, whatever the records are."""

import numpy as np
import pymc as pm
import pytest
from pytensor.graph.traversal import ancestors

from pymc_dp.curator.confidential import count_records, record_arrays
from pymc_dp.curator.record_logp import per_record_logp
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import same_graph

N = 12
rng = np.random.default_rng(5)
Y, AGE = rng.normal(size=N), rng.normal(size=N)
COUNTS = rng.integers(0, 4, N)


def one(value, other):
    """Alike for all records, and then not for one of them."""
    alike = np.full(N, value)
    different = alike.copy()
    different[7] = other
    return alike, different


def one_hot(columns):
    rows = np.zeros((N, columns))
    rows[np.arange(N), np.arange(N) % columns] = 1.0
    different = rows.copy()
    different[3] = 0.5
    return rows, different


def single_ones():
    rows = np.zeros((N, 2))
    rows[3] = 1.0
    different = rows.copy()
    different[3] = 1.0, 2.0
    return rows, different


def offset(f):
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * f, 1, observed=Y)


def vector(f):
    b = pm.Normal("b", shape=2)
    pm.Normal("y", b[0] * f + AGE, 1, observed=Y)


def scale(f):
    pm.Normal("y", pm.Normal("a"), 1 + pm.HalfNormal("b") * f, observed=Y)


def power(f):
    pm.Poisson("y", pm.Gamma("b", 2, 1) ** f + pm.HalfNormal("a"), observed=COUNTS)


def switched(f):
    a, b = pm.Normal("a"), pm.Normal("b")
    pm.Normal("y", pm.math.switch(f, a, b), 1, observed=Y)


def over(f):
    b = pm.Normal("b") * pm.math.gt(f, 100.0)
    pm.Bernoulli("y", logit_p=pm.Normal("a") + b, observed=COUNTS > 1)


def transposed(f):
    pm.Normal("y", pm.Normal("b", shape=f.shape[1]) @ f.T, 1, observed=Y)


def two_observed(f):
    b = pm.Normal("b")
    pm.Normal("x", b * f, 1, observed=AGE)
    pm.Normal("y", pm.Normal("a"), 1, observed=Y)


def observed(f):
    pm.Poisson("y", pm.HalfNormal("b"), observed=f)


def bounds(f):
    lower = pm.Data("lower", f)
    pm.Censored("y", pm.Normal.dist(pm.Normal("b"), 1), lower=lower, observed=np.abs(Y))


def truncated(f):
    pm.Truncated("y", pm.Normal.dist(pm.Normal("b"), 1), lower=f, observed=np.abs(Y))


def two_columns(f):
    b = pm.Normal("b", shape=2)
    pm.Normal("y", b[0] * AGE + b[1] * f, 1, observed=Y)


PAIRS = {
    "zeros": (offset, one(0.0, 1.0)),
    "ones": (offset, one(1.0, 0.0)),
    "zeros, whole numbers": (offset, one(0, 1)),
    "one of two coefficients": (vector, one(0.0, 1.0)),
    "scale": (scale, one(0.0, 1.0)),
    "power": (power, one(0.0, 1.0)),
    "switch": (switched, one(False, True)),
    "comparison": (over, one(1.0, 1000.0)),
    "one-hot rows": (transposed, one_hot(3)),
    "a single one in each column": (transposed, single_ones()),
    "another observed variable": (two_observed, one(0.0, 1.0)),
    "observed": (observed, one(0, 3)),
    "bounds of censored records": (bounds, one(-np.inf, 0.0)),
    "bounds of truncated records": (truncated, one(-np.inf, 0.0)),
    "equal covariates": (two_columns, (AGE.copy(), AGE + np.eye(N)[7])),
}


def graph_of(write, f):
    with pm.Model() as model:
        write(f)
    total = per_record_logp(model)
    sources, axes = record_arrays(total, model, count_records(model))
    return model, total, sources, axes


@pytest.mark.parametrize("case", PAIRS)
def test_the_graph_does_not_depend_on_the_records(case):
    write, pair = PAIRS[case]
    (model, total, sources, axes), (other, others_total, others_sources, others_axes) = (
        graph_of(write, f) for f in pair
    )
    assert axes == others_axes
    inputs = [*sources, *model.value_vars]
    others_inputs = [*others_sources, *other.value_vars]
    assert same_graph(inputs, total, others_inputs, others_total)
    # all parameters that the model names in its likelihood are in it
    assert set(model.value_vars) <= set(ancestors([total]))


@pytest.mark.parametrize("case", PAIRS)
def test_the_density_is_that_of_pymc(case):
    write, (f, _) = PAIRS[case]
    model, total, _, _ = graph_of(write, f)
    point = {value: model.initial_point()[value.name] for value in model.value_vars}
    expected = sum(
        term.eval(point, mode=ONCE, on_unused_input="ignore")
        for term in model.logp(vars=model.observed_RVs, sum=False)
    )
    np.testing.assert_allclose(total.eval(point, mode=ONCE), expected, rtol=1e-12)


def test_an_array_that_is_written_twice_is_one_source():
    X = rng.normal(size=(N, 2))

    def write(f):
        b = pm.Normal("b", shape=2)
        pm.Normal("y", pm.math.dot(f, b), pm.math.exp(pm.math.dot(f, b**2)), observed=Y)

    sources = graph_of(write, X)[2]
    assert [source.data.shape for source in sources if source.data.ndim == 2] == [(N, 2)]


def test_constant_bounds_of_censored_records_are_refused():
    """PyMC looks at them while the model is written."""

    def write(f):
        pm.Censored("y", pm.Normal.dist(pm.Normal("b"), 1), lower=f, observed=np.abs(Y))

    for bounds in one(-np.inf, 0.0):
        with pytest.raises(ValueError, match=r"'y' is censored at bounds.*pm\.Data"):
            graph_of(write, bounds)
