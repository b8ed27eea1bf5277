"""What a function of the user's own can be refused for."""

from __future__ import annotations

from transforms.errors import InputError


class Unfingerprintable(InputError):
    """A function reaches something that cannot be written down, or that changes from run to run.

    ``variable`` is the name in the function's source that stands for it, ``attribute`` what the source does not give.
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
    """A function was fingerprinted with another version of a package than this process has."""
