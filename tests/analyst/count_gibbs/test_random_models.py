"""Models drawn at random, against all of their tables written out.

A model has one parameter, one or two variables of two or three cells, and one to three releases of
random linear maps of them, with noise of any kind and whatever may happen after it, or exact. Every
table is weighed by SciPy's own densities at points of equal prior probability of the parameter. Few
seeds run always; `make calibrate` runs many.
"""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import pymc_dp as pmdp
from pymc_dp.analyst.count_gibbs.cells import cell_variables
from tests.checks import assert_mean_and_sd
from tests.sampling import draw, values

#: points of equal prior probability that stand for the parameter; counts that are tried
POINTS, MOST = 400, 22


def poisson(rng, theta, size):
    rate = rng.uniform(0.3, 2.0, size)
    return (
        lambda name: pm.Poisson(name, theta * rate),
        lambda k, t: stats.poisson.logpmf(k, t * rate).sum(-1),
        [range(MOST)] * size,
    )


def binomial(rng, theta, size):
    n = rng.integers(2, 9, size)
    return (
        lambda name: pm.Binomial(name, n, theta / (1 + theta)),
        lambda k, t: stats.binom.logpmf(k, n, t / (1 + t)).sum(-1),
        [range(m + 1) for m in n],
    )


def negative_binomial(rng, theta, size):
    alpha = rng.uniform(0.5, 4)
    return (
        lambda name: pm.NegativeBinomial(name, mu=theta, alpha=alpha, shape=size),
        lambda k, t: stats.nbinom.logpmf(k, alpha, alpha / (alpha + t)).sum(-1),
        [range(3 * MOST)] * min(size, 2),
    )


def beta_binomial(rng, theta, size):
    n, b = rng.integers(3, 9), rng.uniform(0.5, 3)
    return (
        lambda name: pm.BetaBinomial(name, alpha=theta, beta=b, n=n, shape=size),
        lambda k, t: stats.betabinom.logpmf(k, n, t, b).sum(-1),
        [range(n + 1)] * size,
    )


def zero_inflated(rng, theta, size):
    psi = rng.uniform(0.3, 0.9)

    def log_p(k, t):
        law = np.log(psi) + stats.poisson.logpmf(k, t)
        return np.where(k == 0, np.logaddexp(np.log1p(-psi), law), law).sum(-1)

    build = lambda name: pm.ZeroInflatedPoisson(name, psi, theta, shape=size)  # noqa: E731
    return build, log_p, [range(MOST)] * size


def hurdle(rng, theta, size):
    psi = rng.uniform(0.3, 0.9)

    def log_p(k, t):
        law = np.log(psi) + stats.poisson.logpmf(k, t) - np.log1p(-np.exp(-t))
        return np.where(k == 0, np.log1p(-psi), law).sum(-1)

    build = lambda name: pm.HurdlePoisson(name, psi, theta, shape=size)  # noqa: E731
    return build, log_p, [range(MOST)] * size


def truncated(rng, theta, size):
    low, high = 1, int(rng.integers(4, 9))

    def log_p(k, t):
        inside = stats.poisson.cdf(high, t) - stats.poisson.cdf(low - 1, t)
        return (stats.poisson.logpmf(k, t) - np.log(inside)).sum(-1)

    def build(name):
        return pm.Truncated(name, pm.Poisson.dist(theta), lower=low, upper=high, shape=size)

    return build, log_p, [range(low, high + 1)] * size


def geometric(rng, theta, size):
    return (
        lambda name: pm.Geometric(name, 1 / (1 + theta), shape=size),
        lambda k, t: stats.geom.logpmf(k, 1 / (1 + t)).sum(-1),
        [range(1, 2 * MOST)] * min(size, 2),
    )


def uniform(rng, theta, size):
    low, high = 0, int(rng.integers(4, 9))
    return (
        lambda name: pm.DiscreteUniform(name, low, high, shape=size),
        lambda k, t: np.zeros(len(k)),
        [range(low, high + 1)] * size,
    )


def multinomial(rng, theta, size):
    n, w = int(rng.integers(3, 12)), rng.uniform(0.3, 2.0, size)

    def log_p(k, t):
        q = np.append(t, w[1:]) / (t + w[1:].sum())
        law = gammaln(n + 1) - gammaln(k + 1).sum(-1) + k @ np.log(q)
        return np.where(k.sum(-1) == n, law, -np.inf)

    def build(name):
        q = pm.math.concatenate([[theta], w[1:]])
        return pm.Multinomial(name, n, q / q.sum())

    return build, log_p, [range(n + 1)] * size


def dirichlet_multinomial(rng, theta, size):
    n, w = int(rng.integers(3, 12)), rng.uniform(0.3, 2.0, size)

    def log_p(k, t):
        a = t * w
        law = gammaln(k + a).sum(-1) - gammaln(k + 1).sum(-1) - gammaln(a).sum()
        law += gammaln(n + 1) + gammaln(a.sum()) - gammaln(n + a.sum())
        return np.where(k.sum(-1) == n, law, -np.inf)

    return lambda name: pm.DirichletMultinomial(name, n, theta * w), log_p, [range(n + 1)] * size


FAMILIES = [
    poisson,
    binomial,
    negative_binomial,
    beta_binomial,
    zero_inflated,
    hurdle,
    truncated,
    geometric,
    uniform,
    multinomial,
    dirichlet_multinomial,
]


def noise(rng):
    """Draw a mechanism: gives it, its noise and what follows it, and a release's log-density."""
    scale = rng.uniform(0.8, 3)
    kind = rng.choice(["Laplace", "Gaussian", "DiscreteLaplace", "DiscreteGaussian"])
    mechanism = getattr(pmdp, kind)(**{"sigma" if "Gauss" in kind else "scale": scale})
    real = kind in ("Laplace", "Gaussian")
    if real:
        law = stats.laplace(scale=scale) if kind == "Laplace" else stats.norm(scale=scale)
        density, below = law.logpdf, law.cdf
    else:
        at = np.arange(-300, 301)
        size = np.abs(at) / scale if kind == "DiscreteLaplace" else at**2 / (2 * scale**2)
        log_p = -size - logsumexp(-size)
        total = np.cumsum(np.exp(log_p))
        law = stats.rv_discrete(values=(at, np.exp(log_p)))

        def density(x):
            return log_p[np.asarray(x, int) + 300]

        def below(x):
            return total[np.clip(np.floor(x), -300, 300).astype(int) + 300]

    after = rng.choice(["nothing", "thresholded", "clamped", "rounded" if real else "nothing"])
    edge, step = float(rng.integers(0, 4)), 0.0 if real else 1.0

    def log_density(y, s):
        if after == "thresholded" and np.isnan(y):
            return np.log(below(edge - step - s))
        if after == "clamped" and y == edge:
            return np.log(below(edge - s))
        if after == "rounded":
            return np.log(below(y + 1 - s) - below(y - 1 - s) + 1e-300)
        return density(y - s)

    mechanism, follow = {
        "nothing": lambda: (mechanism, lambda y: y),
        "thresholded": lambda: (
            mechanism.thresholded(edge, dropped=np.nan),
            lambda y: np.where(y < edge, np.nan, y),
        ),
        "clamped": lambda: (mechanism.clamped(lower=edge), lambda y: np.maximum(y, edge)),
        "rounded": lambda: (mechanism.rounded(2), lambda y: 2 * np.floor(y / 2 + 0.5)),
    }[after]()
    return mechanism, lambda s: follow(s + law.rvs(size=s.shape, random_state=rng)), log_density


def random_model(seed):
    """Draw a model: gives it, its tables, and their weights with the parameter's moments."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(1.5, 4), rng.uniform(0.5, 1.5)
    points = stats.gamma.ppf((np.arange(POINTS) + 0.5) / POINTS, a, scale=1 / b)
    with pm.Model() as model:
        theta = pm.Gamma("theta", a, b)
        parts = []
        for name in ("one", "two")[: rng.integers(1, 3)]:
            size = int(rng.integers(2, 4)) if not parts else 2
            parts.append(rng.choice(FAMILIES)(rng, theta, size))
            parts[-1] = (parts[-1][0](name), *parts[-1][1:])
        total = np.prod([float(len(r)) for _, _, ranges in parts for r in ranges])
        if total > 3e5 or any(len(r) != rv.type.shape[-1] for rv, _, r in parts):
            return None
        tables = np.array(list(itertools.product(*(r for part in parts for r in part[2]))))
        sides = np.cumsum([0, *(len(part[2]) for part in parts)])
        law = np.zeros((len(tables), POINTS))
        for j, t in enumerate(points):
            for (_, log_p, _), first, stop in zip(parts, sides, sides[1:], strict=False):
                law[:, j] += log_p(tables[:, first:stop], t)
        drawn = np.exp(law[:, rng.integers(POINTS)])
        truth = tables[rng.choice(len(tables), p=drawn / drawn.sum())]
        cells = pm.math.concatenate([rv for rv, _, _ in parts])
        log_w = _release(rng, cells, truth, tables)
    if len(cell_variables(model)) < len(parts):  # sums over a whole variable are of records
        return None
    log_w = law + log_w[:, np.newaxis]
    weights = np.exp(log_w - logsumexp(log_w))
    return model, tables, weights, points, [str(rv.name) for rv, _, _ in parts]


def _release(rng, cells, truth, tables):
    """Release random maps of the true table; gives the log-density of all that was released."""
    size, log_w = truth.size, np.zeros(len(tables))
    for r in range(int(rng.integers(1, 4))):
        if rng.random() < 0.4:
            matrix = np.eye(size, dtype=int)
        else:
            matrix = rng.choice([0, 0, 1, 1, 2, -1], (int(rng.integers(1, 4)), size))
        if rng.random() < 0.2:
            matrix = np.abs(np.sign(matrix[:1]))  # a plain total, published as it is
            statistic = tables @ matrix.T
            log_w += np.where(np.all(statistic == matrix @ truth, axis=1), 0.0, -np.inf)
            pmdp.Privatized(f"exact{r}", matrix @ cells, pmdp.Exact(), observed=matrix @ truth)
            continue
        mechanism, release, log_density = noise(rng)
        value = np.asarray(release(matrix @ truth), dtype=float)
        with np.errstate(divide="ignore"):  # tables that cannot have been
            for component, y in enumerate(value):
                log_w += log_density(y, tables @ matrix[component])
        pmdp.Privatized(f"noisy{r}", matrix @ cells, mechanism, observed=value)
    return log_w


def check(seed, draws):
    """Compare moments of the parameter and of every cell; false alarms 1e-6 each."""
    found = random_model(seed)
    if found is None:
        return None
    model, tables, weights, points, names = found
    posterior = draw(model, draws=draws)
    by_point, by_table = weights.sum(axis=0), weights.sum(axis=1)
    moments = [(points, by_point)] + [(column, by_table) for column in tables.T]
    cells = np.concatenate([values(posterior, name) for name in names], axis=-1)
    drawn = [values(posterior, "theta"), *np.moveaxis(cells, -1, 0)]
    for x, (support, p) in zip(drawn, moments, strict=True):
        mean = support @ p
        sd = np.sqrt((support - mean) ** 2 @ p)
        if sd < 1e-9:
            np.testing.assert_allclose(x, mean, atol=1e-9)
        else:
            # the points miss a little of the prior's tails
            assert_mean_and_sd(x, mean, sd, 1e-6, mean_error=0.003 * sd, sd_error=0.003 * sd)
    return model


@pytest.mark.wide
@pytest.mark.parametrize("seed", [25])
def test_random_models(seed):
    assert check(seed, 4000) is not None  # a model of this seed there is


@pytest.mark.calibrate
def test_many_random_models():
    tried = [check(seed, 4000) is not None for seed in range(40)]
    assert sum(tried) > 15
