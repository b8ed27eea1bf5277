"""The errors of user-defined functions."""

from __future__ import annotations

from transforms.errors import InputError


class Unfingerprintable(InputError):
    """A function reaches a value that cannot be bundled, or that changes from run to run.

    ``variable`` is its name in the function's source, ``attribute`` the attribute that the source does not give.
    """

    def __init__(
        self,
        why: str,
        *,
        function: str,
        variable: str = "",
        attribute: str = "",
        value: object = None,
        next_step: str = "",
    ) -> None:
        named = f"variable {variable!r} {why}" if variable else why
        super().__init__(f"function {function} cannot be fingerprinted: {named}", value=value, next_step=next_step)
        self.function = function
        self.variable = variable
        self.attribute = attribute


class OtherPackageVersion(InputError):
    """A function was fingerprinted with another version of a package than that of this process."""
