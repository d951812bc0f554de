"""The same draws with and without an executor; what must not be sent is refused."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from dask.distributed import Client, LocalCluster

import pymc_dp as pmdp

RUN = {
    "draws": 30,
    "tune": 20,
    "chains": 2,
    "cores": 1,
    "random_seed": 20261118,
    "quiet": True,
    "compute_convergence_checks": False,
}


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def records():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=20)
        pmdp.Privatized("total", x.sum(), pmdp.Laplace(scale=2), observed=13.1)
    return model


def cells():
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        rate = pm.Gamma("rate", 4, 0.2, dims="group")
        counts = pm.Poisson("counts", rate, dims="group")
        pmdp.Privatized("cells", counts, pmdp.DiscreteGaussian(sigma=2), observed=[20, 31, 11])
    return model


def marginal():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 1, shape=30)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=3), observed=11.0)
    return pmdp.marginalize(model)


def assert_same(one, other):
    assert list(one.children) == list(other.children)
    assert one.attrs.keys() == other.attrs.keys()
    for group in one.children:
        assert one[group].attrs.keys() == other[group].attrs.keys()
        assert one[group].data_vars.keys() == other[group].data_vars.keys()
        for name, values in one[group].data_vars.items():
            assert values.dims == other[group][name].dims
            if not name.startswith(("perf_counter", "process_time")):
                np.testing.assert_array_equal(values, other[group][name])


@pytest.mark.wide_except("records")
@pytest.mark.parametrize("build", [records, cells, marginal])
def test_draws_are_those_without_an_executor(build, threads):
    with build():
        here = pmdp.sample(**RUN)
        there = pmdp.sample(**RUN, executor=threads)
    assert here["posterior"].sizes["chain"] == 2
    assert_same(here, there)


def test_chains_differ_where_no_seed_is_given(threads):
    with records():
        runs = [pmdp.sample(**RUN | {"random_seed": None}, executor=threads) for _ in range(2)]
    values = [run["posterior"]["p"].values for run in runs]
    assert not np.array_equal(values[0], values[1])
    assert not np.array_equal(values[0][0], values[0][1])


class Fails(pm.Metropolis):
    """A step that fails in the middle of a chain."""

    def step(self, point):
        self.iterations = getattr(self, "iterations", 0) + 1
        if self.iterations == 10:
            raise ZeroDivisionError("in the middle")
        return super().step(point)


class DiesOnce(pm.Metropolis):
    """A step whose process dies in the middle of the first chain, and of no other."""

    marker = None

    def step(self, point):
        if not os.path.exists(self.marker):
            with open(self.marker, "w"):
                os._exit(1)
        return super().step(point)


def test_errors_of_a_chain_are_raised_as_they_are(threads):
    with marginal() as model:
        step = Fails(model.free_RVs)
        with pytest.raises(ZeroDivisionError, match="in the middle"):
            pmdp.sample(**RUN, step=step, executor=threads)


@pytest.mark.wide
def test_chain_of_a_worker_that_dies_runs_again_with_the_same_draws(tmp_path):
    with marginal() as model:
        step = DiesOnce(model.free_RVs)
        step.marker = str(tmp_path / "died")
        cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
        with cluster, Client(cluster) as client:
            there = pmdp.sample(**RUN, step=step, executor=client)
        assert os.path.exists(step.marker)
        assert_same(pmdp.sample(**RUN, step=step), there)


def test_what_a_curator_has_is_not_sent():
    class Never:
        def submit(self, *arguments, **options):
            raise AssertionError("something was sent")

    with pm.Model():
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=[0.3, -0.2, 1.1])
        step = pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
        with pytest.raises(pmdp.PrivacyError, match=r"spent its claim.*cores=.*shards"):
            pmdp.sample(10, step=step, executor=Never())
        with pytest.raises(pmdp.PrivacyError, match="executor="):
            pmdp.sample(10, executor=Never())
    assert pmdp.privacy_spent(step).epsilon == 0


@pytest.mark.parametrize("argument", ["callback", "trace"])
def test_what_is_called_at_every_draw_is_refused(argument, threads):
    with records(), pytest.raises(ValueError, match=rf"{argument}= .*every draw"):
        pmdp.sample(**RUN, executor=threads, **{argument: print})


def test_populations_are_refused(threads):
    with marginal() as model:
        step = pm.DEMetropolis(model.free_RVs)
        with pytest.raises(ValueError, match="need each other"):
            pmdp.sample(**RUN | {"chains": 4}, step=step, executor=threads)
