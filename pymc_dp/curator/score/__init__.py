"""Release a noised score of confidential records, for :mod:`pymc_dp.analyst.score`."""
