"""The source of the values of artifacts, such as the terms of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from transforms.errors import InputError

#: The values of an artifact by its digest; raises :class:`InputError` for an unknown one.
Artifacts = Callable[[str], pa.Array]


def no_artifacts(digest: str) -> pa.Array:
    """A source without artifacts."""
    raise InputError("artifacts must be given for a component that reads one", value=digest,
                     next_step="run it where the artifact was made, through a warehouse")  # fmt: skip
