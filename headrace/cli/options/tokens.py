"""The file with the token of a job, as a cluster mounts it."""

from __future__ import annotations

from pathlib import Path

from transforms.errors import InputError, StorageError

#: A shorter token can be guessed; a longer file is refused as no token.
_LEAST_CHARACTERS, _MOST_BYTES = 16, 4096


def read_token_file(path: str) -> str:
    """The token in a file. Raises :class:`InputError` for another content, :class:`StorageError` for a file that cannot be read."""
    try:
        with open(Path(path), "rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise StorageError(
            "the file of a token cannot be read", where=f"--token-file {path}", value=error.strerror
        ) from None
    token = content.decode("utf-8", "replace").strip()
    if len(token) < _LEAST_CHARACTERS or not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError("a token must be printable ASCII without spaces", where=f"--token-file {path}",
                         value=f"{len(token)} characters", allowed=f"at least {_LEAST_CHARACTERS} characters",
                         next_step="openssl rand -hex 32 prints one")  # fmt: skip
    return token
