"""``pm.sample`` with a result that is safe to keep."""

import inspect
from typing import Any

import pymc as pm

from pymc_dp.redaction import sample_redacted
from pymc_dp.steps.curator import curator_steps


def sample(draws: int = 1000, **kwargs: Any) -> Any:
    """Draw posterior samples as ``pm.sample`` does, without the confidential data in the result.

    Parameters
    ----------
    draws : int
        Number of draws a chain, after tuning.
    **kwargs
        As for :func:`pymc.sample`. With a curator's step, ``chains`` is the step's own by default.

    Returns
    -------
    DataTree
        With a curator's step: redacted, and with the guarantee among its attributes.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=[0.3, -0.2, 1.1])
    ...     step = pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=2, clip_logp=3, step_size=0.5)
    ...     idata = pmdp.sample(10, step=step, cores=1, progressbar=False, quiet=True)
    >>> round(idata.attrs["privacy_epsilon"], 6), idata.attrs["privacy_iterations"]
    (1.0, 20)
    """
    model = pm.modelcontext(kwargs.pop("model", None))
    steps = curator_steps(kwargs.get("step"))
    if steps:
        return sample_redacted(draws, steps, model, **kwargs)
    return pm.sample(draws, model=model, **kwargs)


sample.__signature__ = inspect.signature(pm.sample)  # type: ignore[attr-defined]
