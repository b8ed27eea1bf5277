"""A unit in one buffer, as readers send it."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from trainer.model.heads import BINARY, Head
from trainer.model.inputs import InputLayout
from trainer.reading.columns import DecodedFragment, decode
from trainer.reading.unit_requests import UnitRequest

#: What a reader delivers: columns as they were read.
Delivered: TypeAlias = pa.Table


def decode_unit(
    delivered: Delivered, layout: InputLayout, request: UnitRequest, *, labelled: bool = True, head: Head = BINARY
) -> DecodedFragment:
    """The events of a unit, whichever way it was delivered, with the same result.

    Raises :class:`BadFeature` or :class:`BadLabel` naming the fragment, the input and the row.
    """
    return decode(delivered, layout, request.fragment, labelled=labelled, head=head)
