"""What goes wrong between a curator and a promise."""


class PrivacyError(RuntimeError):
    """Going on would break, or has to be assumed to break, a privacy guarantee."""


class ConfidentialDataWarning(UserWarning):
    """A result still carries confidential data and must not be published as it is."""
