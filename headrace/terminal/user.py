"""The person that a command runs for."""

from __future__ import annotations

import getpass


def user_name() -> str:
    """The name of the user; empty for a user without a name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
