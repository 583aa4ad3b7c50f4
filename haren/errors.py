"""What can be wrong with a policy, said early and by name."""

__all__ = ["PolicyError", "PolicyWarning", "PythonFallbackWarning"]


class PolicyError(ValueError):
    """A policy, or what it returned, does not keep its contract.

    ``policy`` names it, ``function`` is "f", "g", "eligible", "quantum" or the name of a feature,
    ``operator`` the operator it was called for, if there was one. What the function raised is the cause.
    """

    def __init__(self, message: str, *, policy: str = "", function: str = "", operator: str | None = None):
        super().__init__(message)
        self.policy = policy
        self.function = function
        self.operator = operator


class PolicyWarning(UserWarning):
    """A policy failed while queries ran; they go on with the last good schedule."""


class PythonFallbackWarning(UserWarning):
    """A user function could not be compiled and runs as Python: same results, far slower."""
