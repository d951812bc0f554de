"""Functions that are compiled with less effort compute what numba's own do."""

import gc
import os
import pickle
import subprocess
import sys

import numba
import numpy as np
import pytest

from pymc_dp.compat.machine_code import HIDDEN, Kernel, QuickLibrary, machine_code_once
from pymc_dp.numerics.compiled import join


def kernel(function):
    return Kernel.of(numba.njit(function))


@kernel
def halved(x):
    if x < 0:
        raise ValueError("below zero")
    return x / 2


@kernel
def halves(x):
    return halved(x) + halved(x + 1.0)


def test_what_python_calls_and_what_compiled_functions_call_are_two():
    assert halves(3.0) == 3.5
    assert isinstance(halved, Kernel)
    assert halved.overloads.keys() == set()  # Python has not called it
    [inside] = halved.inner.overloads.values()
    assert inside.library.joined
    assert halved(3.0) == 1.5  # now it has


def test_errors_of_inner_functions_reach_python():
    with pytest.raises(ValueError, match="below zero"):
        halves(-3.0)


def test_code_that_waits_is_made_when_its_address_is_asked_for():
    with machine_code_once():
        hidden = numba.njit(**HIDDEN)(lambda x: x + 1.0)
        outer = numba.njit(lambda x: hidden(x) * 2.0)
        assert outer(1.0) == 4.0
    [made] = hidden.overloads.values()
    library = made.library
    assert isinstance(library, QuickLibrary)
    assert library.joined
    assert library.get_pointer_to_function("no such function") == 0
    assert library.get_pointer_to_function(made.fndesc.llvm_func_name)
    assert not library.joined
    assert numba.njit(lambda x: hidden(x))(1.0) == 2.0  # and it can still be called


def test_recursion():
    with machine_code_once():

        @numba.njit("int64(int64)")
        def factorial(n):
            return 1 if n < 2 else n * factorial(n - 1)

        assert factorial(5) == 120


def test_garbage_is_searched_for_seldom():
    held = gc.get_threshold()
    try:
        for before, seldom in (((700, 10, 10), True), ((10**6, 1, 1), False), ((0, 10, 10), False)):
            gc.set_threshold(*before)
            with machine_code_once():
                assert (gc.get_threshold() > before) == seldom
                assert gc.get_threshold() >= before
            assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*held)


def test_kernels_travel_to_other_processes():
    made = join("def add(x): return half(x) + 1", {"half": halved}, None)
    assert made(2.0) == 2.0
    assert pickle.loads(pickle.dumps(halved))(2.0) == 1.0


COLD = """
import pymc as pm, pymc_dp as pmdp
with pm.Model():
    p = pm.Beta("p", 1, 1)
    x = pm.Bernoulli("x", p, shape=20)
    pmdp.Privatized("total", x.sum(), pmdp.Laplace(scale=2), observed=13)
    draws = pmdp.sample(30, tune=30, chains=1, cores=1, quiet=True, random_seed=3)
found = draws.posterior["p"].values.tobytes().hex()
print(found)
"""


@pytest.mark.wide
def test_a_cold_run_in_another_process_draws_the_same(tmp_path):
    flags = {"PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
    run = [sys.executable, "-c", COLD]
    cold = subprocess.run(
        run, env={**os.environ, **flags}, capture_output=True, check=True, text=True
    ).stdout
    exec(COLD, here := {"print": lambda text: None})
    assert cold.strip() == here["found"]


def test_numbers_are_those_of_plain_numba():
    x = np.linspace(0.0, 4.0, 7)
    plain = [v / 2 + (v + 1) / 2 for v in x]
    assert [halves(v) for v in x] == plain


def test_errors_tell_in_which_pass_compiling_failed():
    @kernel
    def wrong(x):
        return x + "one"

    with pytest.raises(numba.core.errors.TypingError, match="nopython_type_inference"):
        wrong(1.0)
