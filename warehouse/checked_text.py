"""Text that was decoded from stored bytes: it is followed only if every value of it is UTF-8."""

from __future__ import annotations

import pyarrow as pa

from transforms.errors import DataError


def checked_text(array: pa.StringArray) -> pa.StringArray:
    """``array`` itself. Raises :class:`DataError` unless its offsets ascend within its bytes and each value is UTF-8.

    Kernels step through characters and trust their first byte; one value must not end within a character.
    """
    try:
        array.validate(full=True)
    except pa.ArrowException as error:
        raise DataError("stored text is not UTF-8", value=str(error).splitlines()[0][:200]) from None
    return array
