"""What may run beside a curator's step, what may be asked of it, and what a run costs together."""

import copy
import inspect
import pickle
from collections import deque
from multiprocessing import get_context

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.fgraph import clone_model
from pymc.step_methods.compound import BlockedStep, CompoundStep

import pymc_dp as pmdp
from pymc_dp.accounting import gaussian_epsilon, gaussian_mu
from pymc_dp.curator import gate

Y = np.random.default_rng(1).normal(1.0, 2.0, size=40)
QUIET = {"cores": 1, "progressbar": False, "quiet": True}
OWN = {"epsilon": 1, "delta": 1e-6}


def penalty(model, vars=None, **kwargs):
    kwargs = (OWN if "budget" not in kwargs else {}) | {"chains": 1} | kwargs
    with model:
        return pmdp.DPPenalty(vars, clip_logp=2, step_size=0.3, **kwargs)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", mu, sigma, observed=Y)
    return model


@pytest.fixture(scope="module")
def untouched(model):
    """A step whose data must not be read; what is refused costs nothing, so it serves all tests."""

    def touch(*args):
        raise AssertionError("the data was read")

    step = penalty(model)
    step.likelihood._evaluate = touch
    yield step
    assert pmdp.privacy_spent(step).epsilon == 0


class Hidden(BlockedStep):
    """A step that has another one inside."""

    def __init__(self, vars, inner, **kwargs):
        self.vars, self.inner = [kwargs["model"].rvs_to_values.get(v, v) for v in vars], inner

    def step(self, point):
        return self.inner.step(point)


def beside(model, kind):
    with model:
        mu, sigma = model["mu"], model["sigma"]
        return {
            "nuts, all": lambda: pm.NUTS([mu, sigma]),
            "nuts, one": lambda: pm.NUTS([sigma]),
            "slices": lambda: CompoundStep([pm.Slice([mu]), pm.Slice([sigma])]),
            "nested": lambda: CompoundStep([CompoundStep([pm.Slice([mu])])]),
            "hidden": lambda: Hidden([mu], pm.Slice([mu]), model=model),
        }[kind]()


@pytest.mark.parametrize("order", ["after", "before", "tuple", "deque", "compound", "list in list"])
@pytest.mark.parametrize("kind", ["nuts, all", "nuts, one", "slices", "nested", "hidden"])
def test_no_other_step_beside_a_curators(model, untouched, kind, order):
    other = beside(model, kind)
    steps = {
        "after": lambda: [untouched, other],
        "before": lambda: [other, untouched],
        "tuple": lambda: (untouched, other),
        "deque": lambda: deque([untouched, other]),
        "compound": lambda: CompoundStep([untouched, other]),
        "list in list": lambda: [[untouched], [other]],
    }[order]()
    with model, pytest.raises(pmdp.PrivacyError, match="without noise"):
        pmdp.sample(5, step=steps, chains=1, **QUIET)


def test_no_variable_is_moved_by_two_steps(model, untouched):
    for other in (penalty(model, [model["sigma"]]), untouched):
        with model, pytest.raises(pmdp.PrivacyError, match="leave it to one"):
            pmdp.sample(5, step=[untouched, other], chains=1, **QUIET)


def test_a_step_around_a_curators_is_refused(model, untouched):
    with model:
        hidden = Hidden([model["mu"], model["sigma"]], untouched, model=model)
        for step in (hidden, pm.Metropolis(), None):
            with pytest.raises(pmdp.PrivacyError, match="not among the steps"):
                pmdp.sample(5, step=step, chains=1, **QUIET)


def test_steps_of_another_model_are_refused(model):
    with pm.Model() as other:
        pm.Normal("y", pm.Normal("mu"), 1, observed=Y)
    with other, pytest.raises(pmdp.PrivacyError, match="another model"):
        pmdp.sample(5, step=penalty(model), chains=1, **QUIET)


@pytest.mark.filterwarnings("ignore::pymc_dp.ConfidentialDataWarning")
class TestPlainSample:
    """What pm.sample itself cannot be told, the steps find out."""

    def test_moves_of_own_variables_by_others(self, model):
        for steps in (
            lambda: [penalty(model), beside(model, "nuts, one")],
            lambda: [beside(model, "nested"), penalty(model)],
        ):
            with model, pytest.raises(pmdp.PrivacyError, match="moved by something else"):
                pm.sample(4, tune=4, step=steps(), chains=1, **QUIET)

    def test_in_worker_processes_too(self, model):
        with model, pytest.raises(Exception, match="moved by something else"):
            pm.sample(
                4,
                tune=4,
                step=[penalty(model, chains=2), beside(model, "nuts, one")],
                chains=2,
                **QUIET | {"cores": 2, "mp_ctx": "fork"},
            )

    def test_variables_left_to_others(self, model):
        step = penalty(model, [model["mu"]])
        with model, pytest.raises(pmdp.PrivacyError, match=r"run it by pymc_dp\.sample"):
            pm.sample(4, tune=4, step=step, chains=1, **QUIET)
        assert pmdp.privacy_spent(step).epsilon == 0

    def test_a_single_iteration_is_found_out_by_redact(self, model):
        steps = [penalty(model), beside(model, "nuts, one")]
        with model:
            raw = pm.sample(1, tune=0, step=steps, chains=1, **QUIET)
            with pytest.raises(pmdp.PrivacyError, match="'energy'"):
                pmdp.redact(raw)


def test_a_callback_cannot_steer(model):
    def steer(trace, draw):
        draw.point["mu"][...] = Y.mean()

    with model, pytest.raises(pmdp.PrivacyError, match="callback"):
        pmdp.sample(5, step=penalty(model), chains=1, callback=steer, **QUIET)


def test_steps_for_a_part_each_run_together_in_workers(model):
    # only workers that are not copies of this process unpickle the steps; both copy one that
    # has imported the package
    get_context("forkserver").set_forkserver_preload(["pymc_dp"])
    steps = [penalty(model, [model[name]], chains=2) for name in ("mu", "sigma")]
    with model:
        tree = pmdp.sample(5, step=steps, **QUIET | {"cores": 2, "mp_ctx": "forkserver"})
    assert tree.posterior.sizes["chain"] == 2
    assert not any(step.others_checked for step in steps)


CHANGED = {
    "nuts_sampler": "nutpie",
    "init": "adapt_diag",
    "jitter_max_retries": 3,
    "n_init": 10,
    "trace": object(),
    "keep_warning_stat": True,
    "return_inferencedata": False,
    "idata_kwargs": {"coords": {}},
    "nuts_sampler_kwargs": {"target_accept": 0.9},
    "nuts": {"target_accept": 0.9},
    "target_accept": 0.9,
    "log_likelihood": True,
    "unheard_of": 1,
}


@pytest.mark.parametrize("name", CHANGED)
def test_other_arguments_are_refused_by_name(model, untouched, name):
    with model, pytest.raises(pmdp.PrivacyError, match=f"^{name}= "):
        pmdp.sample(5, step=untouched, chains=1, **{name: CHANGED[name]}, **QUIET)


def test_every_argument_of_sample_is_decided():
    decided = gate._ALLOWED | set(CHANGED) | {"draws", "model", "kwargs"}
    assert set(inspect.signature(pm.sample).parameters) <= decided


@pytest.mark.parametrize("several", [False, True])
def test_chains_do_not_start_at_what_the_data_says(model, untouched, several):
    starts = {"mu": pt.as_tensor(Y).mean()}
    with model, pytest.raises(pmdp.PrivacyError, match="starting value of 'mu'"):
        pmdp.sample(5, step=untouched, chains=1, initvals=[starts] if several else starts, **QUIET)
    with pm.Model() as other:
        mu = pm.Normal("mu", initval=pt.as_tensor(Y).mean())
        pm.Normal("y", mu, 1, observed=Y)
    with pytest.raises(pmdp.PrivacyError, match="starting value of 'mu'"):
        penalty(other)


@pytest.mark.parametrize(
    "asked", [{"draws": 0}, {"draws": 2.5}, {"draws": -3, "tune": 9}, {"tune": -1}, {"chains": 0}]
)
def test_numbers_of_iterations_are_whole(model, untouched, asked):
    with model, pytest.raises(ValueError, match="whole number"):
        pmdp.sample(**{"draws": 5, "chains": 1} | asked, step=untouched, **QUIET)


def test_separate_budgets_of_one_run_compose_to_one_number(model):
    steps = [penalty(model, [model[name]]) for name in ("mu", "sigma")]
    with model:
        tree = pmdp.sample(5, step=steps, chains=1, **QUIET)
    expected = gaussian_epsilon(1e-6, 2 * gaussian_mu(1, 1e-6))
    assert tree.attrs["privacy_epsilon"] == pytest.approx(expected)
    assert tree.attrs["privacy_epsilon"] > 1.4
    assert tree.attrs["privacy_delta"] == 1e-6
    assert tree.attrs["privacy_1_step"] == "DPPenalty"
    assert not {"privacy_0_epsilon", "privacy_1_epsilon"} & set(tree.attrs)
    spent = pmdp.privacy_spent(steps)
    assert tuple(spent) == (tree.attrs["privacy_epsilon"], 1e-6)


def test_different_deltas_compose_at_the_largest(model):
    steps = [penalty(model, [model["mu"]]), penalty(model, [model["sigma"]], delta=1e-5)]
    with model:
        tree = pmdp.sample(5, step=steps, chains=1, **QUIET)
    mu = gaussian_mu(1, 1e-6) + gaussian_mu(1, 1e-5)
    assert tree.attrs["privacy_delta"] == 1e-5
    assert tree.attrs["privacy_epsilon"] == pytest.approx(gaussian_epsilon(1e-5, mu))


def test_a_simulation_beside_a_guarantee_promises_nothing(model):
    steps = [penalty(model, [model["mu"]]), penalty(model, [model["sigma"]], simulation=True)]
    with model:
        tree = pmdp.sample(5, step=steps, chains=1, **QUIET)
    assert tree.attrs["privacy_epsilon"] == np.inf
    assert tree.attrs["privacy_simulation"] == 1


def test_guarantees_without_a_common_one_are_refused(model):
    steps = [
        penalty(model, [model["mu"]]),
        penalty(model, [model["sigma"]], neighbours="add_remove"),
    ]
    with model, pytest.raises(pmdp.PrivacyError, match="share one PrivacyBudget"):
        pmdp.sample(5, step=steps, chains=1, **QUIET)
    assert [pmdp.privacy_spent(step).epsilon for step in steps] == [0, 0]


def test_other_budgets_on_the_same_model_are_named():
    with pm.Model() as fresh:
        pm.Normal("y", pm.Normal("mu"), 1, observed=Y)
    trees = []
    for _ in range(3):
        with fresh:
            trees.append(pmdp.sample(5, step=penalty(fresh), chains=1, **QUIET))
    assert "privacy_other_budgets" not in trees[0].attrs
    assert [tree.attrs["privacy_epsilon"] for tree in trees] == pytest.approx([1, 1, 1])
    assert trees[2].attrs["privacy_other_budgets"] == 2
    together = gaussian_epsilon(1e-6, 3 * gaussian_mu(1, 1e-6))
    assert trees[2].attrs["privacy_all_budgets_epsilon"] == pytest.approx(together)


def test_one_guarantee_is_not_multiplied_by_the_variables(model):
    with pytest.raises(ValueError, match="each of which would claim"):
        penalty(model, blocked=False)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, copy.copy, lambda step: cloudpickle.loads(cloudpickle.dumps(step))],
)
@pytest.mark.filterwarnings("ignore::pymc_dp.ConfidentialDataWarning")
def test_copied_steps_are_refused_as_copies(model, duplicate):
    step = duplicate(penalty(model))
    with model, pytest.raises(pmdp.PrivacyError, match="is a copy"):
        pmdp.sample(5, step=step, chains=1, **QUIET)
    if duplicate is copy.copy:  # PyMC refuses the others, whose variables are copies too
        with model, pytest.raises(pmdp.PrivacyError, match="is a copy"):
            pm.sample(5, step=step, chains=1, **QUIET)


def test_what_was_spent_can_be_copied_and_pickled(model):
    spent = pmdp.privacy_spent(penalty(model))
    for again in (
        copy.copy(spent),
        copy.deepcopy(spent),
        *(pickle.loads(pickle.dumps(spent, protocol)) for protocol in range(2, 6)),
        cloudpickle.loads(cloudpickle.dumps(spent)),
    ):
        assert type(again) is type(spent)
        assert again == spent
        assert again.details == spent.details
        assert repr(again) == repr(spent)


def test_what_is_added_later_does_not_tell_the_number_of_records():
    with pm.Model(coords={"person": range(30)}) as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=np.linspace(-1, 1, 30))
        step = pmdp.DPPenalty(
            epsilon=1, delta=1e-6, clip_logp=3, step_size=0.1, neighbours="add_remove"
        )
        pm.Deterministic("told", mu * model.dim_lengths["person"])
        with pytest.raises(ValueError, match="'told' is made of the number of records"):
            pmdp.sample(3, step=step, cores=1)
    assert pmdp.privacy_spent(step).epsilon == 0


@pytest.mark.parametrize("copied", [copy.copy, clone_model, lambda model: pm.do(model, {})])
def test_copies_of_a_model_are_curated_too(model, copied):
    with model:
        pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.1)
    with pytest.raises(pmdp.PrivacyError, match="same records"):
        pmdp.sample(5, tune=5, chains=1, model=copied(model), quiet=True)
