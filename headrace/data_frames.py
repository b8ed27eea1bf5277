"""The libraries of data frames, if they are installed."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from transforms.errors import InputError


def frame_library(name: Literal["polars", "pandas"], *, where: str, otherwise: str) -> ModuleType:
    """The module of a library. Raises :class:`InputError` if it is not installed.

    Args:
        name: of the library.
        where: what needs it.
        otherwise: what else the caller can do.
    """
    try:
        if name == "polars":
            import polars

            return polars
        import pandas
    except ModuleNotFoundError as error:
        raise InputError(f"{name} must be installed to read as {name}", where=where, value=str(error),
                         next_step=f"pip install {name}, or {otherwise}") from None  # fmt: skip
    module: ModuleType = pandas
    return module
