"""Bayesian inference from, and with, differential privacy: a PyMC plugin."""

from pymc_dp import datasets, interop, regression
from pymc_dp.accounting import ConfidentialDataWarning, PrivacyBudget, PrivacyError
from pymc_dp.analyst.marginal.marginalize import marginalize
from pymc_dp.analyst.marginal.recover import recover_records
from pymc_dp.analyst.privatized import Privatized, clamp
from pymc_dp.analyst.score.release import ScoreRelease
from pymc_dp.analyst.steps import CountGibbs, GibbsSS, NormalX, RecordGibbs
from pymc_dp.analyst.unknown_size import unknown_size
from pymc_dp.curator.plan.pilot import pilot
from pymc_dp.curator.plan.suggest import clip_fraction, suggest
from pymc_dp.curator.plan.suggest_hmc import suggest_hmc
from pymc_dp.curator.plan.suggest_langevin import suggest_langevin
from pymc_dp.curator.redaction import redact
from pymc_dp.curator.score.release import score_release
from pymc_dp.curator.score.suggest import suggest_score
from pymc_dp.curator.steps.base import privacy_spent
from pymc_dp.curator.steps.dp_barker import DPBarker
from pymc_dp.curator.steps.dp_hmc import DPHMC, DPMALA
from pymc_dp.curator.steps.dp_penalty import DPPenalty
from pymc_dp.curator.steps.dp_sgld import DPSGLD
from pymc_dp.curator.steps.dp_sgnht import DPSGNHT
from pymc_dp.diagnostics import mmd
from pymc_dp.explain import explain
from pymc_dp.mechanisms import (
    CustomMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    ExponentialMechanism,
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

__version__ = "0.1.0"

__all__ = [
    "DPHMC",
    "DPMALA",
    "DPSGLD",
    "DPSGNHT",
    "ConfidentialDataWarning",
    "CountGibbs",
    "CustomMechanism",
    "DPBarker",
    "DPPenalty",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "ExponentialMechanism",
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
    "clamp",
    "clip_fraction",
    "datasets",
    "explain",
    "interop",
    "marginalize",
    "mmd",
    "pilot",
    "privacy_spent",
    "recover_records",
    "redact",
    "regression",
    "regression_release",
    "regression_statistics",
    "sample",
    "score_release",
    "suggest",
    "suggest_hmc",
    "suggest_langevin",
    "suggest_score",
    "unknown_size",
]
