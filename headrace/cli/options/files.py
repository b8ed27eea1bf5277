"""The files that options name."""

from __future__ import annotations

from pathlib import Path

from transforms.errors import InputError

_MOST_FILE_BYTES = 64 << 20


def read_file(file: str, option: str) -> bytes:
    """The bytes of the file of an option. Raises :class:`InputError` for one that cannot be read."""
    try:
        with Path(file).open("rb") as opened:  # a larger file is refused by what reads it
            return opened.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise InputError("the file must be readable", where=option, value=file, next_step=str(error)) from error
