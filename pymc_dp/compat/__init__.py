"""Every private or unstable name of PyMC, PyTensor and numba that is used here, and nothing else.

What an upgrade of these breaks, it breaks here: ``tests/test_compat.py`` says which name is gone
and what it was for. Rules are registries, to which distributions of this package are added.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from numba.core.errors import NumbaPerformanceWarning  # advice on code that PyTensor wrote
from pymc.distributions.distribution import SymbolicRandomVariable  # variables made of others
from pymc.distributions.distribution import _support_point as support_point_rules  # starting values
from pymc.distributions.mixture import _HurdleRV as HurdleRV  # counts beyond a hurdle
from pymc.distributions.shape_utils import rv_size_is_none  # size of a random variable
from pymc.distributions.transforms import (
    _default_transform as default_transform_rules,  # unconstrained values
)
from pymc.initial_point import make_initial_point_fn  # draws of starting points
from pymc.logprob.abstract import _icdf as icdf_rules  # quantile functions
from pymc.logprob.abstract import _logcdf as logcdf_rules  # distribution functions
from pymc.logprob.abstract import _logprob as logprob_rules  # densities
from pymc.logprob.basic import transformed_conditional_logp  # densities of a model's variables
from pymc.logprob.utils import (
    CheckParameterValue,  # checks that look at all records
    replace_rvs_by_values,  # values for some variables only
)
from pymc.model.core import MODEL_MANAGER  # models in context
from pymc.model.fgraph import ModelDeterministic, ModelFreeRV  # variables of a model's copy
from pymc.progress_bar import (
    MCMCProgressBarManager,  # bars of pm.sample
    create_simple_progress,  # one bar
)
from pymc.pytensorf import (
    collect_default_updates,  # next states of generators
    normalize_rng_param,  # generator of a random variable
)
from pymc.sampling.mcmc import _iter_sample as iterate_chain  # a chain, draw by draw
from pymc.sampling.mcmc import (
    assign_step_methods,  # which step pm.sample picks
    instantiate_steppers,  # the steps it picked, with their arguments
)
from pymc.sampling.parallel import ParallelSamplingError  # a chain that failed elsewhere
from pymc.step_methods import STEP_METHODS  # steps that pm.sample picks from
from pymc.step_methods.compound import flatten_steps  # steps inside compound ones
from pymc.step_methods.state import (
    DataClassState,  # what a step carries on
    WithSamplingState,  # parts of a step with a state
    dataclass_state,  # states that can be copied
)
from pytensor.compile.rewriting import inline_ofg_node  # writes nested graphs out
from pytensor.link.numba.cache import (
    CACHED_SRC_FUNCTIONS,  # keys of compiled code on disk
    compile_numba_function_src,  # functions from text
)
from pytensor.link.numba.dispatch.basic import (
    numba_njit,  # numba as PyTensor sets it
    register_funcify_and_cache_key,  # our operations
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify  # draws in numba
from pytensor.tensor.random.utils import normalize_size_param  # size of a random variable
from rich.progress import TextColumn  # of PyMC's progress bar
from rich.table import Column  # the same

from pymc_dp.compat.chains import (
    bare_trace,
    chains_run_by,
    fill_trace,
    keep_compiled_in,
    sample_external,
    trace_values,
)
from pymc_dp.compat.machine_code import (
    HIDDEN,
    Kernel,
    garbage_seldom,
    machine_code_once,
    plain_slice_errors,
)
from pymc_dp.compat.nutpie_settings import nutpie_takes
from pymc_dp.compat.operations import operations_once

__all__ = [
    "CACHED_SRC_FUNCTIONS",
    "HIDDEN",
    "MODEL_MANAGER",
    "STEP_METHODS",
    "CheckParameterValue",
    "DataClassState",
    "HurdleRV",
    "Kernel",
    "MCMCProgressBarManager",
    "ModelDeterministic",
    "ModelFreeRV",
    "NumbaPerformanceWarning",
    "ParallelSamplingError",
    "ProgressHooks",
    "SymbolicRandomVariable",
    "WithSamplingState",
    "assign_step_methods",
    "bare_trace",
    "chains_run_by",
    "collect_default_updates",
    "compile_numba_function_src",
    "create_simple_progress",
    "dataclass_state",
    "default_transform_rules",
    "fill_trace",
    "flatten_steps",
    "garbage_seldom",
    "icdf_rules",
    "inline_ofg_node",
    "instantiate_steppers",
    "iterate_chain",
    "jit_function",
    "keep_compiled_in",
    "logcdf_rules",
    "logprob_rules",
    "machine_code_once",
    "make_initial_point_fn",
    "model_being_assigned",
    "models_in_context",
    "no_model_context",
    "normalize_rng_param",
    "normalize_size_param",
    "numba_core_rv_funcify",
    "numba_njit",
    "nutpie_takes",
    "operations_once",
    "plain_slice_errors",
    "register_funcify_and_cache_key",
    "replace_rvs_by_values",
    "rv_size_is_none",
    "sample_external",
    "support_point_rules",
    "trace_values",
    "transformed_conditional_logp",
]


class ProgressHooks:
    """What PyMC asks of a step in the main process, before a run: which statistics to show."""

    #: statistics that are shown while sampling, and their titles
    progress_statistics: ClassVar[dict[str, str]] = {}

    def before_sampling(self) -> None:
        """Take notice of a run, once and in the main process, whatever the number of cores."""

    def _progressbar_config(self, n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list]]:
        self.before_sampling()
        columns = [
            TextColumn(f"{{task.fields[{name}]:0.2f}}", table_column=Column(title, ratio=1))
            for name, title in self.progress_statistics.items()
        ]
        return columns, {name: [0.0] * n_chains for name in self.progress_statistics}

    def _make_progressbar_update_functions(self) -> tuple[Callable[[dict], dict], ...]:
        names = tuple(self.progress_statistics)
        return (lambda statistics: {name: statistics[name] for name in names},)


def jit_function(function: Any) -> Any:
    """Take the numba function out of a compiled PyTensor function."""
    return Kernel.of(function.vm.jit_fn)


def model_being_assigned() -> Any:
    """Model that ``assign_step_methods`` was called with, which tells steps variables alone."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code is assign_step_methods.__code__:
            return frame.f_locals["model"]
        frame = frame.f_back
    return None


def models_in_context() -> list[Any]:
    """Models whose contexts are open."""
    return [model for model in MODEL_MANAGER.active_contexts if model is not None]


@contextmanager
def no_model_context() -> Iterator[None]:
    """Leave all models' contexts: a model made in one would become a part of it."""
    held, MODEL_MANAGER.active_contexts = MODEL_MANAGER.active_contexts, []
    try:
        yield
    finally:
        MODEL_MANAGER.active_contexts = held
