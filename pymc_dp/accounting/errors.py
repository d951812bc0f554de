"""What goes wrong between a curator and a promise."""


class PrivacyError(RuntimeError):
    """Going on would break, or has to be assumed to break, a privacy guarantee.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> budget = pmdp.PrivacyBudget(epsilon=1, delta=1e-6)
    >>> try:
    ...     pmdp.Laplace(scale=5).release(412.0, budget=budget, sensitivity=10)  # epsilon 2
    ... except pmdp.PrivacyError as error:
    ...     print("refused")
    refused
    """


class ConfidentialDataWarning(UserWarning):
    """A result still carries confidential data and must not be published as it is.

    ``pmdp.sample`` leaves the data out by itself; ``pm.sample`` keeps it, and gives this warning
    with a curator's step. :func:`~pymc_dp.redact` takes it out.

    Examples
    --------
    >>> import warnings
    >>> import pymc_dp as pmdp
    >>> warnings.simplefilter("error", pmdp.ConfidentialDataWarning)
    """
