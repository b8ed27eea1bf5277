"""A user-defined operator that reads nothing."""

from __future__ import annotations

import pyarrow as pa

from transforms.functions import op


@op(result="string")
def broken(text: pa.Array) -> pa.Array:
    """Raises whatever it is given."""
    raise ValueError(f"cannot read {text[0]}")
