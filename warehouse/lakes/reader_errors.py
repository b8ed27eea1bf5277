"""The errors of the packages that read lakes, as Headrace's."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from transforms.errors import DataError, HeadraceError, StorageError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SHOWN = 400


@contextlib.contextmanager
def translated_lake_errors(name: str, where: str, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Translate any other error than Headrace's: the packages' classes have no common root beside Exception.

    Raises :class:`StorageError` for what may pass, which are the operating system's errors, failed connections and ``passing``; else
    :class:`DataError`.

    Args:
        name: the format, with its article.
        where: the location of the lake.
        passing: further classes of errors that may pass.
    """
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        said = _text(error)
        if isinstance(error, passing) or _may_pass(error):
            raise StorageError(f"cannot read {name} table: its store or catalog failed", where=where, value=said,
                               next_step="check the network and the credentials, then run it again") from error  # fmt: skip
        raise DataError(f"{name} table must be readable by its log", where=where, value=said,
                        next_step="check the location, its credentials and --lake-version") from error  # fmt: skip


def _may_pass(error: Exception) -> bool:
    """Arrow raises a plain OSError without a number for damaged files too; that of a store names its service."""
    if not isinstance(error, OSError):
        return False
    return type(error) is not OSError or error.errno is not None or "AWS Error" in str(error)


def _text(error: Exception) -> str:
    """The error's lines in one: the first one alone often says only which layer failed."""
    lines = [line.strip(" ↳\t") for line in _COLOURS.sub("", str(error)).splitlines()]
    return "; ".join(line for line in lines if line)[:_SHOWN] or type(error).__name__
