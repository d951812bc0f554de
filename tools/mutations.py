"""Ways to break the package, each with the tests that should notice: see ``tools/mutate.py``.

What is replaced must be found exactly once; ``tests/test_mutations.py`` holds that, so that no
mutation goes stale in silence.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One change of one file.

    Attributes
    ----------
    name : str
        What is broken, in words.
    file : str
        Where, below ``pymc_dp/``.
    old, new : str
        What is written in place of what.
    tests : str
        Where to look for a test that fails: files or folders below ``tests/``, cheapest first.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str


PRIVACY = [
    Mutation(
        "noise at the door halved",
        "accounting/door.py",
        "return self.looks[kind].noise_multiplier * self.record_weight",
        "return self.looks[kind].noise_multiplier * self.record_weight / 2",
        "accounting/test_door.py",
    ),
    Mutation(
        "more looks than were paid for",
        "accounting/door.py",
        "if self._owner != here or next(self._left[kind], None) is None:",
        "if self._owner != here:",
        "accounting/test_door.py",
    ),
    Mutation(
        "a look at the data before it is counted",
        "accounting/door.py",
        "        self._take(kind)\n"
        "        return noise.release(look(), self.noise(kind) * bound, self.generator)",
        "        seen = look()\n"
        "        self._take(kind)\n"
        "        return noise.release(seen, self.noise(kind) * bound, self.generator)",
        "accounting/test_door.py",
    ),
    Mutation(
        "a door opened without a claim",
        "accounting/budget.py",
        "        self.claim(looks, purpose)\n        return Door",
        "        return Door",
        "accounting/test_door.py",
    ),
    Mutation(
        "claims that are not kept",
        "accounting/ledger.py",
        'db.execute("COMMIT")\n            if self._read(db)[len(before) :][: len(rows)] != rows:\n'
        '                raise self._lost("did not keep what was claimed just now")\n'
        "        return True",
        'db.execute("ROLLBACK")\n        return True',
        "accounting/test_budget.py",
    ),
    Mutation(
        "claims from a ledger of another guarantee",
        "accounting/ledger.py",
        "if kept != self._guarantee:",
        "if False:",
        "accounting/test_budget.py",
    ),
    Mutation(
        "warnings that tell of a record near the largest float",
        "curator/model.py",
        '@np.errstate(all="ignore")  # a warning would tell that some record is out of range\n',
        "",
        "curator/test_transcript.py",
    ),
    Mutation(
        "tiny divergences of batches halved",
        "accounting/renyi.py",
        "logsumexp(log_q + log_normal + excess) + log_step)",
        "logsumexp(log_q + log_normal + excess) + log_step - math.log(2))",
        "accounting/test_renyi.py",
    ),
    Mutation(
        "exact noise narrower than what is charged",
        "accounting/noise.py",
        "scale = int(sd) + 2 ",
        "scale = int(sd) ",
        "accounting/test_noise.py",
    ),
    Mutation(
        "exact noise with a wrong exponent",
        "numerics/exact_noise.py",
        "return _exp_minus(r, r, _TWO, scale, words, place)",
        "return _exp_minus(r, r, _ONE, scale, words, place)",
        "numerics/test_exact_noise.py",
    ),
    Mutation(
        "clipped ratios that are not clipped",
        "curator/penalty_kernels.py",
        "ratio = _TOP if ratio > _TOP else ratio",
        "ratio = 2 * _TOP if ratio > 2 * _TOP else ratio",
        "curator/test_penalty_kernels.py",
    ),
    Mutation(
        "gradients clipped to twice the bound",
        "curator/gradient_kernels.py",
        "return _ONE / np.sqrt(square if square > _ONE else _ONE)",
        "return np.float32(2) / np.sqrt(square if square > _ONE + _ONE + _ONE + _ONE else "
        "_ONE + _ONE + _ONE + _ONE)",
        "curator/test_gradient_kernels.py",
    ),
    Mutation(
        "observed data left in the result",
        "curator/redaction.py",
        '_GROUPS = ("posterior", ',
        '_GROUPS = ("observed_data", "posterior", ',
        "curator/test_redaction.py",
    ),
    Mutation(
        "steps that read the data beside a curator's",
        "curator/gate.py",
        "if not isinstance(method, CuratorStep):",
        "if method is None:",
        "curator/test_gate.py",
    ),
    Mutation(
        "mu of composed looks halved",
        "accounting/composition.py",
        "return self.iterations / (2 * self.noise_multiplier**2)",
        "return self.iterations / (4 * self.noise_multiplier**2)",
        "accounting",
    ),
    Mutation(
        "rows that mix records are not refused",
        "curator/likelihood.py",
        "return refuse_mixed_records(likelihood.names, logp, rows, likelihood.axes, vouched, "
        "lengths)",
        "return False",
        "curator/test_independence.py",
    ),
    Mutation(
        "a held score that is not held",
        "analyst/score/bounding.py",
        "factor = pt.minimum(1.0, clip / pt.maximum(length, 1e-300))\n    return pt.switch",
        "factor = pt.ones_like(length)\n    return pt.switch",
        "curator/score analyst/score",
    ),
]

CURATOR = [
    Mutation(
        "the penalty dropped",
        "curator/penalty_kernels.py",
        "return tempering * noisy_log_ratio + log_prior_ratio - tempered * tempered / 2",
        "return tempering * noisy_log_ratio + log_prior_ratio",
        "curator/test_penalty_kernels.py curator/steps/test_dp_penalty_invariance.py",
    ),
    Mutation(
        "kinetic energy forgotten",
        "curator/hmc_iteration.py",
        "public = after - log_prior_here + kinetic",
        "public = after - log_prior_here",
        "curator/test_hmc_iteration.py curator/steps/test_dp_hmc_invariance.py",
    ),
    Mutation(
        "Jacobian forgotten in a curator's prior",
        "curator/model.py",
        "public = model.logp(vars=[*model.free_RVs, *model.potentials], jacobian=True)",
        "public = model.logp(vars=[*model.free_RVs, *model.potentials], jacobian=False)",
        "curator/test_likelihood.py curator/steps/test_dp_hmc_invariance.py",
    ),
    Mutation(
        "twice the drift of SGLD",
        "curator/steps/dp_sgld.py",
        "return theta + self.basis @ (size / 2 * gradient + chance)",
        "return theta + self.basis @ (size * gradient + chance)",
        "curator/steps/test_langevin.py",
    ),
    Mutation(
        "privacy noise injected twice in SGLD",
        "curator/steps/dp_sgld.py",
        "missing = np.maximum(size - size * size / 4 * self._known_variance(noise), 0.0)",
        "missing = np.full(gradient.size, size)",
        "curator/steps/test_langevin.py",
    ),
    Mutation(
        "a thermostat that does not cool",
        "numerics/thermostat.py",
        "shrink = np.exp(-half * friction)[..., None]",
        "shrink = np.ones_like(friction)[..., None]",
        "numerics/test_thermostat.py curator/steps/test_langevin.py",
    ),
    Mutation(
        "privacy noise injected twice in SGNHT",
        "curator/steps/dp_sgnht.py",
        "missing = np.maximum(2 * self.diffusion * size - size * size * known, 0.0)",
        "missing = np.full(known.size, 2 * self.diffusion * size)",
        "curator/steps/test_langevin.py",
    ),
    Mutation(
        "a thermostat that sees the old momentum",
        "numerics/thermostat.py",
        "    friction = friction + half * ((momentum**2).sum(-1) / size_of - 1)\n"
        "    return displacement + half * momentum, momentum, friction",
        "    return 2 * displacement, momentum, friction",
        "numerics/test_thermostat.py",
    ),
    Mutation(
        "a batch's own error not counted in SGLD",
        "curator/steps/langevin.py",
        "own = self._gradient_sd(noise) ** 2 + self.batch_noise**2",
        "own = self._gradient_sd(noise) ** 2",
        "curator/steps/test_langevin.py",
    ),
    Mutation(
        "a batch's own error not counted in Barker's test",
        "curator/steps/dp_barker.py",
        "return math.sqrt((noise / self.fraction) ** 2 + batch)",
        "return noise / self.fraction",
        "curator/steps/test_dp_barker.py",
    ),
    Mutation(
        "privacy noise filled up as if there were none in Barker's test",
        "curator/steps/dp_barker.py",
        "rest = math.sqrt(max(VARIANCE - (noisy.tempering * noisy.sd) ** 2, 0.0))",
        "rest = math.sqrt(VARIANCE)",
        "curator/steps/test_dp_barker.py",
    ),
    Mutation(
        "jumps to zero accepted without the ratio of what is offered",
        "analyst/count_gibbs/jumps.py",
        "ratio += offered if there == 0.0 else -offered",
        "ratio += 0.0",
        "analyst/count_gibbs/test_moved.py",
    ),
    Mutation(
        "derivatives as a nested graph says they are",
        "curator/record_logp.py",
        "written_out(without_checks(total))",
        "without_checks(total)",
        "curator/test_independence.py",
    ),
    Mutation(
        "fixed cells kept in the lattice",
        "analyst/count_gibbs/lattice.py",
        "(np.abs(reduced).sum(axis=0) > 0) & ~fixed[first])",
        "np.abs(reduced).sum(axis=0) > 0)",
        "analyst/count_gibbs/test_zeros.py analyst/count_gibbs/test_connected.py",
    ),
    Mutation(
        "casts of totals that round",
        "graph/additivity/whole.py",
        "return bool(np.can_cast(before, after))",
        "return True",
        "graph/test_additivity.py",
    ),
    Mutation(
        "a discrete parameter that half believes the release",
        "analyst/record_gibbs/discrete_parents.py",
        "weights = np.cumsum(np.exp(values - np.max(values)))",
        "weights = np.cumsum(np.exp(0.5 * (values - np.max(values))))",
        "analyst/record_gibbs/test_discrete_parents.py",
    ),
    Mutation(
        "conjugate forms that may miss by half",
        "analyst/record_gibbs/forms.py",
        "_TOLERANCE = 1e-7",
        "_TOLERANCE = 0.5",
        "analyst/record_gibbs/test_units.py",
    ),
    Mutation(
        "records in sight while a likelihood is simplified",
        "curator/record_logp.py",
        "if isinstance(leaf, Constant) and n_records in leaf.data.shape:",
        "if isinstance(leaf, Constant) and leaf.data.shape is None:",
        "curator/test_record_logp.py",
    ),
    Mutation(
        "half the slope of a Gram matrix's determinant",
        "analyst/marginal/regression/density_graphs.py",
        "by_S[j] = powers[j] * inverse",
        "by_S[j] = 0.5 * powers[j] * inverse",
        "analyst/marginal/test_density_graphs.py",
    ),
    Mutation(
        "linear ratios not clipped",
        "curator/linear_ratios.py",
        "ratio = _TOP if ratio > _TOP else ratio",
        "ratio = 4 * _TOP if ratio > 4 * _TOP else ratio",
        "curator/test_linear_ratios.py",
    ),
    Mutation(
        "records' statistics kept over another data set",
        "curator/linear_ratios.py",
        "if self._blocks is None or self._data is not self._likelihood.data:",
        "if self._blocks is None:",
        "curator/test_linear_ratios.py",
    ),
    Mutation(
        "Barker's test without its correction",
        "curator/steps/dp_barker.py",
        "chance = rest * self.rng.normal() + self.correction.draw(self.rng)",
        "chance = rest * self.rng.normal()",
        "curator/steps/test_dp_barker.py",
    ),
    Mutation(
        "scores by covariates not centred",
        "analyst/score/bounding.py",
        "centred.append(u[0] - mean)",
        "centred.append(u[0])",
        "analyst/score curator/score",
    ),
]

ANALYST = [
    Mutation(
        "half the Laplace noise in the sweep",
        "mechanisms/laplace.py",
        "return -abs(released - statistic) / scale\n",
        "return -2.0 * abs(released - statistic) / scale\n",
        "mechanisms/test_continuous.py analyst/test_exact_posterior.py",
    ),
    Mutation(
        "a record skipped in the sweep",
        "analyst/record_gibbs/sweep.py",
        "for i in range(n):\n            log_ratio = proposed",
        "for i in range(1, n):\n            log_ratio = proposed",
        "analyst/record_gibbs/test_sweep.py",
    ),
    Mutation(
        "a statistic that is not updated",
        "analyst/record_gibbs/sweep.py",
        "statistic[j] += proposed[i, j] - contributions[i, j]",
        "statistic[j] += 0.0",
        "analyst/record_gibbs/test_sweep.py",
    ),
    Mutation(
        "other factors of a record forgotten",
        "analyst/record_gibbs/sweep.py",
        "log_ratio = proposed_log_weight[i] - log_weight[i] if weighted else 0.0",
        "log_ratio = 0.0",
        "analyst/record_gibbs/test_sweep.py analyst/record_gibbs/test_step.py",
    ),
    Mutation(
        "residuals that are not kept",
        "analyst/record_gibbs/residuals.py",
        "return new[0] + (new[1] - new[0]) / (old[1] - old[0]) * (x - old[0])",
        "return new[0] + (x - old[0])",
        "analyst/record_gibbs/test_interweave.py analyst/record_gibbs/test_families.py",
    ),
    Mutation(
        "Jacobian forgotten in the interweaving move",
        "analyst/record_gibbs/interweave.py",
        "log_density = model.logp(vars=rest, jacobian=True)",
        "log_density = model.logp(vars=rest, jacobian=False)",
        "analyst/record_gibbs/test_interweave.py analyst/test_exact_posterior.py",
    ),
    Mutation(
        "conjugate gamma with one too few",
        "analyst/record_gibbs/conjugate_draws.py",
        "shape[i], rate[i] = sign * (a + 1), -sign * b",
        "shape[i], rate[i] = sign * a, -sign * b",
        "analyst/record_gibbs/test_units.py analyst/record_gibbs/test_parameters.py",
    ),
    Mutation(
        "a slice that forgets its level",
        "numerics/slice.py",
        "inside = value > level",
        "inside = value > level - 1.0",
        "analyst/record_gibbs/test_parameters.py analyst/test_exact_posterior.py",
    ),
    Mutation(
        "NUTS that always takes the new half",
        "numerics/nuts.py",
        "if -rng.standard_exponential() < part_weight - log_weight:",
        "if part_weight > -np.inf:",
        "numerics/test_nuts.py",
    ),
    Mutation(
        "cells' factorials forgotten",
        "analyst/count_gibbs/sweep.py",
        "change = k * phi - _log_rising(count + 1.0, k)",
        "change = k * phi",
        "analyst/count_gibbs",
    ),
    Mutation(
        "slopes of cells' sums halved",
        "analyst/count_gibbs/sums.py",
        "slopes[PHI] = moment / total",
        "slopes[PHI] = 0.5 * moment / total",
        "analyst/count_gibbs/test_sums.py",
    ),
    Mutation(
        "shares drawn without their prior",
        "analyst/count_gibbs/drawn.py",
        "gain = (shares.prior[one] - 1.0) * more_one + (shares.prior[two] - 1.0) * more_two",
        "gain = 0.0",
        "analyst/count_gibbs analyst/marginal/test_counted.py",
    ),
    Mutation(
        "variance of the noise left out of normal totals",
        "analyst/marginal/normal/convolved.py",
        "return _NormalNoise(whole, variance + gaussian)",
        "return _NormalNoise(whole, variance)",
        "analyst/marginal/test_convolved.py analyst/marginal/test_normal.py",
    ),
    Mutation(
        "mixing variances half as large",
        "analyst/marginal/normal/normal_release.py",
        "return cls()(2.0, size=(number,), rng=rng, return_next_rng=True)[1]",
        "return cls()(1.0, size=(number,), rng=rng, return_next_rng=True)[1]",
        "analyst/marginal/test_normal.py",
    ),
    Mutation(
        "records' law left out of a mixture",
        "analyst/marginal/exact/mixture.py",
        "return pt.stack(columns, axis=0) + masses",
        "return pt.stack(columns, axis=0) + 0 * masses",
        "analyst/marginal/test_exact.py",
    ),
    Mutation(
        "variances of Laplace noise from one root alone",
        "numerics/normal_mixture.py",
        "out[i] = root if rng.random() * (root + m) <= root else m * m / root",
        "out[i] = root",
        "numerics/test_normal_mixture.py",
    ),
    Mutation(
        "statistics drawn without the noise's draw",
        "analyst/regression/gibbs_ss/latent_statistics.py",
        "gap = self.released - (s if self.whole else self.map @ s) - noise",
        "gap = self.released - (s if self.whole else self.map @ s)",
        "analyst/regression/gibbs_ss/test_step.py",
    ),
    Mutation(
        "determinant of Gram matrices forgotten",
        "analyst/regression/normal_x/gram_moves.py",
        "log_ratio = (alpha - 0.5 * (p + 1)) * (old_det - new_det)",
        "log_ratio = alpha * (old_det - new_det)",
        "analyst/regression/normal_x/test_iteration.py analyst/regression/normal_x",
    ),
    Mutation(
        "randomised response read the other way round",
        "mechanisms/randomized_response.py",
        "log_p = table[pt.clip(truth, 0, rows - 1), pt.clip(report, 0, columns - 1)]",
        "log_p = table[pt.clip(truth, 0, rows - 1), columns - 1 - pt.clip(report, 0, columns - 1)]",
        "mechanisms/test_randomized_response.py",
    ),
    Mutation(
        "widths of planned releases without the records that were asked for",
        "diagnostics/calibration/cells.py",
        "also = confidential(source) if cell.with_records else []",
        "also = []",
        "diagnostics/test_design.py",
    ),
    Mutation(
        "releases of the same records left out one by one",
        "diagnostics/log_likelihood.py",
        "integrated.records if integrated else name",
        "name",
        "diagnostics/test_log_likelihood.py",
    ),
]

FORMATS = [
    Mutation(
        "noise that is too small for its guarantee is not refused",
        "formats/claim.py",
        "at_least > rho * (1 + _ROUNDED)",
        "at_least > 9 * rho",
        "formats/test_claim.py",
    ),
    Mutation(
        "an exact number of records may be published under add_remove",
        "formats/published.py",
        'if self.neighbours != "substitute":\n                raise',
        "if False:\n                raise",
        "formats/test_documents.py",
    ),
    Mutation(
        "what happened after the noise is read in another order",
        "formats/mechanism.py",
        "steps.insert(0, step)",
        "steps.append(step)",
        "formats/test_round_trip.py",
    ),
    Mutation(
        "groups at OpenDP's threshold count as kept",
        "interop/opendp_release.py",
        "int(threshold) + 1",
        "int(threshold)",
        "interop/test_summaries.py",
    ),
]

MUTATIONS = [*PRIVACY, *CURATOR, *ANALYST, *FORMATS]
