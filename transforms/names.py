"""The one rule for names: of tables, models, clients, inputs, labels, jobs and roles. Pure.

Names become parts of paths, URLs, columns and messages. So they consist of ASCII, which looks alike in all of them and has one spelling
(digits of other scripts have the values of ASCII's, but are other names), and never have two dots in a row, which paths give a meaning.
"""

from __future__ import annotations

import re
from typing import Final

from transforms.errors import InputError

#: The most characters of a name.
MOST_NAME: Final = 128
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.))*")


def is_name(text: object, *, most: int = MOST_NAME) -> bool:
    """Whether a value is a text of at most ``most`` characters that the rule allows."""
    return isinstance(text, str) and len(text) <= most and _NAME.fullmatch(text) is not None


def allowed_names(*, most: int = MOST_NAME) -> str:
    """The rule in words, for errors."""
    return f"letters a to z and A to Z, digits 0 to 9, '_', '.', '-', at most {most}, a letter or digit first, no '..'"


def check_name(text: object, what: str, *, where: str = "", most: int = MOST_NAME) -> None:
    """Raise :class:`InputError` unless a value can be the name of a ``what``."""
    if not is_name(text, most=most):
        raise InputError(f"the name of {what} must consist of letters, digits, '_', '.' and '-'", where=where, value=text,
                         allowed=allowed_names(most=most))  # fmt: skip


def is_whole_number(text: str) -> bool:
    """Whether a text has only the digits 0 to 9: digits of other scripts are refused, though Python reads them."""
    return text.isascii() and text.isdigit()
