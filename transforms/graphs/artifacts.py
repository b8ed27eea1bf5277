"""Where the values of artifacts come from, such as the terms of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from transforms.errors import InputError

#: The values of an artifact by its digest; raises :class:`InputError` for one that is not known.
Artifacts = Callable[[str], pa.Array]


def no_artifacts(digest: str) -> pa.Array:
    """The source of artifacts where there is none."""
    raise InputError("a component reads an artifact, and there is no place to take it from", value=digest,
                     next_step="run it where the artifact was made, through a warehouse")  # fmt: skip
