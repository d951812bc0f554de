"""Bayesian inference from, and with, differential privacy: a PyMC plugin."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymc_dp import datasets, interop, regression
    from pymc_dp.accounting import ConfidentialDataWarning, PrivacyBudget, PrivacyError
    from pymc_dp.analyst.marginal.marginalize import marginalize
    from pymc_dp.analyst.marginal.recover import recover_records
    from pymc_dp.analyst.privatized import Privatized, clamp
    from pymc_dp.analyst.read_release import read_release
    from pymc_dp.analyst.score.release import ScoreRelease
    from pymc_dp.analyst.statistic_release import StatisticRelease
    from pymc_dp.analyst.steps import CountGibbs, GibbsSS, NormalX, RecordGibbs
    from pymc_dp.analyst.unknown_size import unknown_size
    from pymc_dp.curator.plan.pilot import pilot
    from pymc_dp.curator.plan.suggest import clip_fraction, suggest
    from pymc_dp.curator.plan.suggest_hmc import suggest_hmc
    from pymc_dp.curator.plan.suggest_langevin import suggest_langevin
    from pymc_dp.curator.plan.suggest_penalty import suggest_penalty
    from pymc_dp.curator.redaction import redact
    from pymc_dp.curator.score.release import score_release
    from pymc_dp.curator.score.suggest import suggest_score
    from pymc_dp.curator.shards.records import shard
    from pymc_dp.curator.steps.base import privacy_spent
    from pymc_dp.curator.steps.dp_barker import DPBarker
    from pymc_dp.curator.steps.dp_hmc import DPHMC, DPMALA
    from pymc_dp.curator.steps.dp_penalty import DPPenalty
    from pymc_dp.curator.steps.dp_sgld import DPSGLD
    from pymc_dp.curator.steps.dp_sgnht import DPSGNHT
    from pymc_dp.diagnostics import calibrate, compute_log_likelihood, design, mmd
    from pymc_dp.explanation import explain
    from pymc_dp.mechanisms import (
        BoundedLaplace,
        CustomMechanism,
        DiscreteGaussian,
        DiscreteLaplace,
        Exact,
        ExponentialMechanism,
        FoldedDiscreteLaplace,
        FoldedLaplace,
        Gaussian,
        Guarantee,
        KNormGradient,
        Laplace,
        Mechanism,
        PrivacyWarning,
        RandomizedResponse,
        Staircase,
    )
    from pymc_dp.regression import (
        HolderStatistics,
        RegressionStatistics,
        regression_release,
        regression_statistics,
    )
    from pymc_dp.sampling import sample

__version__ = "0.2.0"

__all__ = [
    "DPHMC",
    "DPMALA",
    "DPSGLD",
    "DPSGNHT",
    "BoundedLaplace",
    "ConfidentialDataWarning",
    "CountGibbs",
    "CustomMechanism",
    "DPBarker",
    "DPPenalty",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "ExponentialMechanism",
    "FoldedDiscreteLaplace",
    "FoldedLaplace",
    "Gaussian",
    "GibbsSS",
    "Guarantee",
    "HolderStatistics",
    "KNormGradient",
    "Laplace",
    "Mechanism",
    "NormalX",
    "PrivacyBudget",
    "PrivacyError",
    "PrivacyWarning",
    "Privatized",
    "RandomizedResponse",
    "RecordGibbs",
    "RegressionStatistics",
    "ScoreRelease",
    "Staircase",
    "StatisticRelease",
    "calibrate",
    "clamp",
    "clip_fraction",
    "compute_log_likelihood",
    "datasets",
    "design",
    "explain",
    "interop",
    "marginalize",
    "mmd",
    "pilot",
    "privacy_spent",
    "read_release",
    "recover_records",
    "redact",
    "regression",
    "regression_release",
    "regression_statistics",
    "sample",
    "score_release",
    "shard",
    "suggest",
    "suggest_hmc",
    "suggest_langevin",
    "suggest_penalty",
    "suggest_score",
    "unknown_size",
]


# numba and most of SciPy are not needed to write `import pymc_dp`: names are imported when they are
# first used (PEP 562), from where the imports above, which type checkers read, say that they are
@cache
def _homes() -> dict[str, str]:
    tree = ast.parse(Path(__file__).read_bytes())
    unread = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in unread.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _homes()[name]
    value = (
        import_module(f"{home}.{name}") if home == __name__ else getattr(import_module(home), name)
    )
    globals()[name] = value
    return value
