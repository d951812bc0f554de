"""Likelihoods that keep records apart are accepted, such as mix them are refused, by the graph."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.ifelse import ifelse
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.extra_ops import CumOp

import pymc_dp as pmdp
from pymc_dp.curator.independence import check_records_apart
from pymc_dp.curator.likelihood import FlatSpace, RecordLikelihood
from pymc_dp.curator.model import RecordModel
from pymc_dp.graph.intervals import ONCE

rng = np.random.default_rng(0)
N = 30
X = rng.normal(size=(N, 3))
Y = rng.normal(size=N)
POSITIVE = np.exp(Y)
GROUP = rng.integers(0, 4, size=N)
COUNT = rng.integers(0, 6, size=N)
FLAG = rng.integers(0, 2, size=N)
SIMPLEX = rng.dirichlet(np.ones(3), size=N)
TABLE = rng.multinomial(10, np.ones(3) / 3, size=N)
SERIES = rng.normal(size=(N, 5))


class Opaque(Op):
    """An operation that no rule knows: something is done along an axis."""

    def __init__(self, function):
        self.function = function

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.ascontiguousarray(self.function(inputs[0]), dtype=inputs[0].dtype)


def m():
    return pm.Normal("m")


def coefficients(*shape):
    return pm.Normal("b", shape=shape)


def normal(mu, sigma=1):
    pm.Normal("y", mu, sigma, observed=Y)


def x_data():
    return pm.Data("x", X[:, 0])


def counts():
    return pm.Data("c", COUNT)


def cutpoints():
    transform = pm.distributions.transforms.ordered
    return pm.Normal("c", [-1, 0, 1], 1, shape=3, transform=transform)


def log_softmax_of_records():
    def logp(value, b, x):
        return pt.special.log_softmax(x @ b[0], axis=-1)[pt.arange(value.shape[0]), value]

    pm.CustomDist(
        "y", coefficients(3, 4), X, logp=logp, signature="(p,k),(p)->()", dtype="int64",
        observed=GROUP,
    )  # fmt: skip


def censored_in_rows():
    scale = pm.math.exp(X @ coefficients(3))
    limit = pm.Data("limit", 1 + np.abs(X[:, 0]))
    pm.Censored("y", pm.Weibull.dist(2.0, scale), None, limit, observed=POSITIVE / 10)


def covariance_by_group():
    sd = pm.HalfNormal("s", shape=4)
    pm.MvNormal("x", 0, sd[GROUP][:, None, None] * np.eye(3), observed=X)


def mixture_by_hand():
    def logp(value, w, mu):
        parts = pt.log(w) + pm.logp(pm.Normal.dist(mu, 1), value[:, None])
        return pm.math.logsumexp(parts, axis=-1)

    w, mu = pm.Dirichlet("w", np.ones(2)), pm.Normal("mu", shape=2)
    pm.CustomDist("y", w, mu, logp=logp, signature="(k),(k)->()", observed=Y)


def custom_distribution():
    def dist(mu, size):
        return pm.math.exp(pm.Normal.dist(mu, 1, size=size))

    pm.CustomDist("y", m(), dist=dist, observed=POSITIVE)


def random_walk_in_each_row():
    start = pm.Normal.dist(0, 1)
    pm.GaussianRandomWalk("y", mu=m(), sigma=1, init_dist=start, steps=4, observed=SERIES)


def one_covariate_or_none():
    x = pm.Data("x", np.where(FLAG, X[:, 0], 0))
    normal(pm.math.switch(pm.Data("has", FLAG), x * m(), 0.0))


def two_observed_variables():
    a = coefficients(4)
    x = pm.Normal("x", a[GROUP], 1, observed=Y)
    pm.Poisson("k", pm.math.exp(a[GROUP] + x), observed=COUNT)


def stacked_intercept():
    x = pm.Data("X", X)
    normal(pt.concatenate([pt.ones_like(x[:, :1]), x], axis=1) @ coefficients(4))


def basis_functions():
    hinges = pm.math.maximum(0, x_data()[:, None] - np.linspace(-1, 1, 6))
    normal(hinges @ coefficients(6))


def named_dimensions():
    with pm.modelcontext(None) as model:
        model.add_coords({"group": range(6), "obs": range(N), "covariate": range(3)})
    gamma = pm.Normal("gamma", shape=2)
    about_groups = np.arange(12.0).reshape(6, 2)
    a = pm.Normal("a", about_groups @ gamma + np.arange(6.0), 1, dims="group")
    b = pm.Normal("b", 0, 1, dims="covariate")
    w = pm.Dirichlet("w", np.arange(1.0, 7.0), dims="group")
    x = pm.Data("X", X, dims=("obs", "covariate"))
    mean = pm.Deterministic("mean", (a + w)[pm.Data("g", GROUP, dims="obs")] + x @ b, dims="obs")
    pm.Normal("y", mean, 1, observed=pm.Data("Y", Y, dims="obs"), dims="obs")


APART = {
    "group index": lambda: normal(coefficients(4)[pm.Data("g", GROUP)]),
    "crossed groups": lambda: normal(coefficients(4, 2)[GROUP, FLAG]),
    "groups of slopes": lambda: normal((coefficients(4, 3)[GROUP] * X).sum(-1)),
    "one-hot": lambda: normal(pt.extra_ops.to_one_hot(pm.Data("g", GROUP), 4) @ coefficients(4)),
    "rows of the identity": lambda: normal(pt.eye(4)[GROUP] @ coefficients(4)),
    "transposed": lambda: normal(pm.math.dot(coefficients(3), pm.Data("Xt", X.T))),
    "einsum": lambda: normal(pt.einsum("ij,j->i", pm.Data("X", X), coefficients(3))),
    "tensordot": lambda: normal(pt.tensordot(pm.Data("X", X), coefficients(3), axes=[[1], [0]])),
    "network": lambda: normal(pt.tanh(pm.Data("X", X) @ coefficients(3, 5)).sum(1)),
    "sorted within rows": lambda: normal(pt.sort(pm.Data("X", X), axis=1) @ coefficients(3)),
    "reshaped within rows": lambda: normal(pm.Data("X", X).reshape((N, 3, 1)).sum((1, 2)) * m()),
    "series within rows": lambda: pm.Normal("y", m() * SERIES[:, :-1], 1, observed=SERIES[:, 1:]),
    "rows of vectors": lambda: pm.MvNormal("x", coefficients(3), np.eye(3) + 0.3, observed=X),
    "vectors around groups": lambda: pm.MvNormal(
        "x", coefficients(4, 3)[GROUP], np.eye(3) + 0.3, observed=X
    ),
    "integers in a container": lambda: pm.Poisson("y", pm.math.exp(m()), observed=counts()),
    "labels in a container": lambda: pm.Bernoulli(
        "y", logit_p=pm.Data("X", X) @ coefficients(3), observed=pm.Data("label", FLAG)
    ),
    "normal mixture": lambda: pm.NormalMixture(
        "y", pm.Dirichlet("w", np.ones(2)), pm.Normal("m", shape=2), 1, observed=Y
    ),
    "mixture of regressions": lambda: pm.Mixture(
        "y", pm.Dirichlet("w", np.ones(2)), pm.Normal.dist(X @ coefficients(3, 2), 1), observed=Y
    ),
    "zero-inflated": lambda: pm.ZeroInflatedPoisson("y", 0.7, pm.math.exp(m()), observed=COUNT),
    "hurdle": lambda: pm.HurdleGamma("y", 0.7, pm.math.exp(m()), 1.0, observed=POSITIVE),
    "truncated": lambda: pm.Truncated("y", pm.Normal.dist(m(), 1), -5, 5, observed=Y),
    "binomial of row totals": lambda: pm.Binomial(
        "y", n=COUNT + 3, p=pm.math.sigmoid(m()), observed=COUNT
    ),
    "dirichlet": lambda: pm.Dirichlet("y", pm.Gamma("t", 1, 0.1, shape=3), observed=SIMPLEX),
    "multinomial": lambda: pm.Multinomial(
        "y", n=10, p=pm.Dirichlet("p", np.ones(3)), observed=TABLE
    ),
    "categorical": lambda: pm.Categorical("y", logit_p=X @ coefficients(3, 4), observed=GROUP),
    "ordered": lambda: pm.OrderedLogistic(
        "y", X @ coefficients(3), cutpoints(), compute_p=False, observed=GROUP
    ),
    "switch": lambda: normal(pm.math.switch(x_data() > m(), 1.0, -1.0)),
    "length given": lambda: pm.Normal("y", m(), 1, shape=N, observed=Y),
} | {
    build.__name__: build
    for build in (
        log_softmax_of_records,
        censored_in_rows,
        covariance_by_group,
        mixture_by_hand,
        custom_distribution,
        random_walk_in_each_row,
        one_covariate_or_none,
        two_observed_variables,
        stacked_intercept,
        basis_functions,
        named_dimensions,
    )
}


def likelihood_of(build, **vouched):
    with pm.Model() as model:
        build()
    mode = {"mode": Mode(linker="py", optimizer=None)}
    return RecordLikelihood(model, FlatSpace(model), mode, **vouched)


@pytest.mark.parametrize("name", APART)
def test_independent_records_are_accepted(name):
    assert likelihood_of(APART[name]).n_records == N


def of(make, use):
    """Likelihood around a function of one array."""
    return lambda: normal(m() * use(make()))


def lagged_outcome():
    y = pm.Data("Y", Y)
    pm.Normal("y", m() * pt.concatenate([[0.0], y[:-1]]), 1, observed=y)


def own_spread():
    y = pm.Data("Y", Y)
    pm.Normal("y", m(), y.std(), observed=y)


def mean_in_a_custom_density():
    pm.CustomDist("y", m(), logp=lambda v, m: -((v - v.mean() - m) ** 2), observed=Y)


def mean_of_constants_in_a_closure():
    x = pt.constant(X[:, 0])
    pm.CustomDist("y", m(), logp=lambda v, m: -((v - m * x.mean()) ** 2), observed=Y)


def mean_of_constants_in_a_random_graph():
    x = pt.constant(X[:, 0])

    def dist(mu, size):
        return pm.Normal.dist(mu + x - x.mean(), 1, size=size)

    pm.CustomDist("y", m(), dist=dist, observed=Y)


def mean_of_an_argument_in_a_random_graph():
    def dist(mu, x, size):
        return pm.Normal.dist(mu * (x - x.mean()), 1, size=size)

    pm.CustomDist("y", m(), X[:, 0], dist=dist, observed=Y)


def deterministic_of_centred_covariates():
    x = x_data()
    normal(m() * pm.Deterministic("z", x - x.mean()))


def gaussian_process():
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, pm.HalfNormal("l")))
    gp.marginal_likelihood("y", X=X[:, :1], y=Y, sigma=1)


def sums_by_group():
    x, g = x_data(), pm.Data("g", GROUP)
    normal(m() * pt.zeros(4)[g].inc(x)[g])


def neighbours_values():
    normal(m() * x_data()[pm.Data("j", rng.integers(0, N, size=N))])


def first_record_by_index():
    normal(m() * pm.Data("X", X)[np.array([0]), pm.Data("g", GROUP % 3)])


def parameters_by_mask():
    flag = pm.Data("f", FLAG.astype(bool))
    effects = pm.Normal("t", shape=N)
    normal(pt.set_subtensor(pt.zeros(N)[flag], effects[: int(FLAG.sum())]))


def squared_differences(x):
    return pt.exp(-((x[:, None] - x[None, :]) ** 2))


def running(x):
    return pytensor.scan(
        lambda one, before: 0.9 * before + one,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        return_updates=False,
    )


MIXED = {
    "mean of integers": of(counts, lambda c: c - c.mean()),
    "spread of integers": of(counts, lambda c: c / c.std()),
    "largest of integers": of(counts, lambda c: c / c.max()),
    "sum of integers": of(counts, lambda c: c / c.sum()),
    "frequency of integers": of(counts, lambda c: pt.bincount(c)[c]),
    "largest": of(x_data, lambda x: x / x.max()),
    "largest by switch": of(x_data, lambda x: pt.switch(pt.ge(x, x.max()), 1.0, 0.0)),
    "bound that is never reached": of(x_data, lambda x: pt.clip(x, -3, 50 * pt.abs(x).max())),
    "any": of(lambda: pm.Data("f", FLAG.astype(bool)), lambda f: f.any()),
    "all": of(lambda: pm.Data("f", FLAG.astype(bool)), pt.all),
    "cumulative": of(x_data, pt.cumsum),
    "sorted": of(x_data, pt.sort),
    "ranks": of(x_data, pt.argsort),
    "ranks by comparison": of(x_data, lambda x: (x[:, None] > x[None, :]).sum(1)),
    "rolled": of(x_data, lambda x: pt.roll(x, 1)),
    "reversed": of(x_data, lambda x: x[::-1]),
    "permuted": of(x_data, lambda x: x[np.random.default_rng(1).permutation(N)]),
    "differences": of(x_data, lambda x: pt.concatenate([[0.0], pt.diff(x)])),
    "convolved": of(x_data, lambda x: pt.signal.convolve1d(x, np.array([0.5, 0.3]), mode="same")),
    "to the first": of(x_data, lambda x: x - x[0]),
    "nearest": of(x_data, lambda x: pt.abs(x[:, None] - x[None, :]).min(1)),
    "pairs": of(x_data, lambda x: pt.repeat(x.reshape((N // 2, 2)).mean(1), 2)),
    "halves swapped": of(x_data, lambda x: x.reshape((2, N // 2)).T.ravel()),
    "kernel": of(x_data, lambda x: pt.linalg.solve(squared_differences(x), x)),
    "softmax over records": of(x_data, lambda x: pt.special.softmax(x, axis=0)),
    "normalised weights": of(x_data, lambda x: x - pm.math.logsumexp(x)),
    "second moments": of(lambda: pm.Data("X", X), lambda x: (x @ (x.T @ x)).sum(1)),
    "centred columns": of(
        lambda: pm.Data("Xt", X.T), lambda x: (x - x.mean(1, keepdims=True)).sum(0)
    ),
    "orthogonal columns": of(
        lambda: pm.Data("X", X), lambda x: pt.linalg.qr(x, mode="reduced")[0].sum(1)
    ),
    "sign of the sum": of(x_data, lambda x: ifelse(pt.gt(x.sum(), 0), x, -x)),
    "mean of constants": of(lambda: pt.constant(X[:, 0]), lambda x: x - x.mean()),
    "constants among each other": of(
        lambda: pt.constant(squared_differences(X[:, 0]).eval(mode=ONCE)), lambda d: d.min(1)
    ),
} | {
    build.__name__: build
    for build in (
        lagged_outcome,
        own_spread,
        mean_in_a_custom_density,
        mean_of_constants_in_a_closure,
        mean_of_constants_in_a_random_graph,
        mean_of_an_argument_in_a_random_graph,
        deterministic_of_centred_covariates,
        gaussian_process,
        sums_by_group,
        neighbours_values,
        first_record_by_index,
    )
}
UNKNOWN = {
    "running": (of(x_data, running), "Scan"),
    "distinct": (of(counts, lambda c: pt.extra_ops.unique(c, return_inverse=True)[1]), "Unique"),
    "parameters by mask": (parameters_by_mask, "known|picks"),
    "opaque": (of(x_data, Opaque(lambda x: x - x.mean())), "Opaque"),
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("vouched", [False, True])
def test_mixed_records_are_refused_even_if_vouched_for(name, vouched):
    # the message is that of the proof: the trial has its own test
    message = r"mixes records \((?!one changes)|joint density|more than one axis|inside a function"
    with pytest.raises(ValueError, match=message):
        likelihood_of(MIXED[name], independent_records=vouched)


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_operations_are_refused_by_name(name):
    build, operation = UNKNOWN[name]
    with pytest.raises(ValueError, match=operation):
        likelihood_of(build)


def test_unknown_operations_that_are_vouched_for_are_still_tried():
    in_rows = of(lambda: pm.Data("X", X), lambda x: Opaque(lambda v: np.sort(v, 1))(x).sum(1))
    with pytest.raises(ValueError, match=r"`Opaque`.*independent_records=True"):
        likelihood_of(in_rows)
    assert likelihood_of(in_rows, independent_records=True).n_records == N
    over_rows = of(lambda: pm.Data("X", X), lambda x: Opaque(lambda v: np.sort(v, 0))(x).sum(1))
    with pytest.raises(ValueError, match="one changes with another record's values"):
        likelihood_of(over_rows, independent_records=True)
    both = of(x_data, lambda x: Opaque(np.exp)(x) - x.mean())
    with pytest.raises(ValueError, match="total over all records"):
        likelihood_of(both, independent_records=True)


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
@pytest.mark.parametrize("step", [pmdp.DPPenalty, pmdp.DPMALA])
def test_every_step_and_the_pilot_take_what_is_vouched_for(step):
    settings = {"clip_logp": 1, "step_size": 1, "epsilon": 1, "delta": 1e-6}
    settings |= {"clip_grad": 1} if step is pmdp.DPMALA else {}
    with pm.Model():
        pm.Normal("y", m(), Opaque(np.abs)(x_data()) + 1, observed=Y)
        with pytest.raises(ValueError, match="independent_records"):
            step(**settings)
        with pytest.raises(ValueError, match="independent_records"):
            pmdp.pilot(pmdp.PrivacyBudget(1, 1e-6), lambda values: None)
        assert step(independent_records=True, **settings).likelihood.n_records == N


COUNTING = {
    "length": of(x_data, lambda x: x / x.shape[0]),
    "size": of(x_data, lambda x: x / x.size),
    "square root": of(x_data, lambda x: x / pt.sqrt(x.shape[0])),
    "places": of(x_data, lambda x: x + pt.arange(x.shape[0]) / x.shape[0]),
    "sum of ones": of(x_data, lambda x: x / pt.ones(x.shape[0]).sum()),
    "last place": of(x_data, lambda x: x / pt.arange(x.shape[0]).max()),
    "index": of(x_data, lambda x: x + pt.stack([1.0, -1.0])[pt.cast(x.shape[0] > 50, "int64")]),
    "first entries": of(x_data, lambda x: x + pm.Normal("t", shape=40)[: x.shape[0]]),
    "shares": of(x_data, lambda x: x + pt.special.softmax(pt.zeros(x.shape[0]), axis=0)),
    "end of a slice": of(x_data, lambda x: x + pt.stack([1.0, -1.0])[: x.shape[0] - 29].sum()),
    "length of what is no record's": of(
        x_data,
        lambda x: x + pm.Normal("t", shape=60).reshape((x.shape[0], 2), ndim=2)[0, 1],
    ),
    "length of another axis": of(
        x_data,
        lambda x: (
            pt.stack([x] * 4 + [-x] * 2, axis=1)
            .reshape((x.shape[0], pt.switch(x.shape[0] > 50, 2, 3), -1), ndim=3)[:, 0]
            .sum(axis=1)
        ),
    ),
}


@pytest.mark.parametrize("name", COUNTING)
def test_the_number_of_records_does_not_enter_as_a_number(name):
    # one record more or less would change all rows
    with pytest.raises(ValueError, match="changes with the number of records"):
        likelihood_of(COUNTING[name])


class Seen(Op):
    """A function of each record that remembers what it has seen of others."""

    gufunc_signature = "(k)->()"

    def make_node(self, x):
        return Apply(self, [x], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0].sum()


class Adding(CumOp):
    """A known operation's heir."""


DISGUISED = {
    "part of another": of(lambda: pm.Data("X", X), lambda x: Blockwise(Seen())(x)),
    "an heir": of(lambda: pm.Data("X", X), lambda x: Adding(1, "add")(x).sum(1)),
}


@pytest.mark.parametrize("name", DISGUISED)
def test_operations_of_others_are_unknown_in_disguise_too(name):
    with pytest.raises(ValueError, match=r"`(Seen|Adding)` is not one of .*independent_records"):
        likelihood_of(DISGUISED[name])


def test_derivatives_are_those_of_the_density_whatever_a_nested_graph_says():
    def logp(value, mu):
        v, center = pt.dvector("v"), pt.dscalar("center")

        def pullback(inputs, outputs, gradients):
            sign = pt.switch(pt.any(inputs[0] > 5), -1.0, 1.0)  # of all records
            return [pt.zeros_like(inputs[0]), (100 * sign * gradients[0]).sum()]

        density = OpFromGraph([v, center], [-0.5 * (v - center) ** 2], pullback=pullback)
        return density(value, mu.ravel()[0])

    with pm.Model() as model:
        pm.CustomDist("y", pm.Normal("m"), logp=logp, observed=Y)
    records = RecordModel(model)
    records.gradients.prepare(np.eye(1))
    gradients = np.hstack(list(records.gradients.jacobians(np.array([0.25]))))
    np.testing.assert_allclose(gradients[0], Y - 0.25, rtol=1e-6)


def updated():
    number = pytensor.shared(1.0, name="number")
    number.default_update = pt.as_tensor(Y).sum()
    return number


UPDATED = {
    "likelihood": lambda: normal(m() * updated()),
    "prior": lambda: normal(pm.Normal("b", updated(), 1)),
    "deterministic": lambda: (normal(m()), pm.Deterministic("told", updated() * 1.0)),
}


@pytest.mark.filterwarnings("ignore:Setting default_update:DeprecationWarning")
@pytest.mark.parametrize("name", UPDATED)
def test_numbers_that_functions_change_are_refused(name):
    with pytest.raises(ValueError, match="default_update"):
        likelihood_of(UPDATED[name])


def test_lengths_may_be_those_of_the_records():
    def build():
        x = pm.Data("X", X)
        ones = pt.ones((x.shape[0], 2)).sum(1)
        normal(m() * x.mean(1) * ones + x.shape[1] + coefficients(1)[pt.zeros(N, dtype=int)])

    assert likelihood_of(build).n_records == N


# --- the trial by itself -------------------------------------------------------------------------


TRIED = {
    "largest, an odd row": lambda x, c, f: x / x.max(),
    "smallest": lambda x, c, f: x - x.min(),
    "second largest": lambda x, c, f: x - np.sort(x)[-2],
    "largest integer": lambda x, c, f: x + c.max(),
    "sum of integers": lambda x, c, f: x + c.sum(),
    "number of distinct integers": lambda x, c, f: x + len(np.unique(c)),
    "all flags": lambda x, c, f: x + f.all(),
    "any flag": lambda x, c, f: x + f.any(),
    "number of flags": lambda x, c, f: x + f.sum(),
    "neighbour": lambda x, c, f: np.roll(x, 1),
    "neighbour of every tenth": lambda x, c, f: np.where(np.arange(N) % 10 == 4, np.roll(x, 1), x),
    "first": lambda x, c, f: x - x[0],
    "last": lambda x, c, f: x - c[-1],
    "median": lambda x, c, f: x - np.median(x),
}


@pytest.mark.parametrize("name", TRIED)
def test_the_trial_moves_all_rows_and_all_kinds_of_numbers(name):
    x = np.abs(X[:, 0].copy())
    x[7] = 40.0
    data = [x, COUNT, FLAG.astype(bool)]
    check_records_apart("'y'", lambda rows: rows[0] + rows[1] + rows[2], data, [0, 0, 0])
    with pytest.raises(ValueError, match="another record's values"):
        check_records_apart("'y'", lambda rows: TRIED[name](*rows), data, [0, 0, 0])


def test_the_trial_leaves_the_data_as_it_is():
    data = [X.T.copy(), COUNT.copy()]
    check_records_apart("'y'", lambda rows: rows[0].sum(0) + rows[1], data, [1, 0])
    np.testing.assert_array_equal(data[0], X.T)
    np.testing.assert_array_equal(data[1], COUNT)


# --- records' places in the order ----------------------------------------------------------------

PLACES = {
    "entry of a table": lambda x: pm.Normal("t", shape=99)[3 * pt.arange(x.shape[0])],
    "trend": lambda x: pt.arange(x.shape[0]) * 0.01,
    "last": lambda x: pt.arange(x.shape[0])[-1],
    "turned": lambda x: pt.cumsum(pt.ones(x.shape[0]))[::-1],
    "product": lambda x: pt.ones(x.shape[0]) @ pt.ones(x.shape[0]),
}
NO_PLACES = {
    "column of ones": lambda x: pt.stack([pt.ones(x.shape[0]), x], axis=1).sum(axis=1),
    "own entry": lambda x: pt.stack([x, 2 * x], axis=1)[pt.arange(x.shape[0]), FIRST],
}
FIRST = np.zeros(30, dtype=int)


def placed(use):
    with pm.Model() as model:
        x = pm.Data("x", np.linspace(-1, 1, 30))
        pm.Normal("y", pm.Normal("m") + use(x), 1, observed=np.linspace(0, 1, 30))
    return model


@pytest.mark.parametrize("use", [*PLACES.values(), *NO_PLACES.values()], ids=[*PLACES, *NO_PLACES])
def test_a_place_in_the_order_is_no_record_of_its_own(use):
    made = {"epsilon": 1, "delta": 1e-6, "clip_logp": 3, "step_size": 0.1, "model": placed(use)}
    made["compile_kwargs"] = {"mode": ONCE}  # refused or not, by the graph
    assert pmdp.DPPenalty(**made).likelihood.n_records == 30
    if use in PLACES.values():
        with pytest.raises(ValueError, match="places in the order"):
            pmdp.DPPenalty(**made, neighbours="add_remove")
    else:
        assert pmdp.DPPenalty(**made, neighbours="add_remove").likelihood.n_records == 30
