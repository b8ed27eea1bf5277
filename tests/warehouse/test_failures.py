"""What a failure says of itself."""

from __future__ import annotations

import pytest

from warehouse import Failure


@pytest.mark.parametrize(
    ("error", "exception"),
    [
        ("ValueError: no", "ValueError"),
        ("pyarrow.lib.ArrowInvalid: no", "pyarrow.lib.ArrowInvalid"),
        ("KeyError", "KeyError"),
        ("DataError: function picky raised ValueError; where: models.py:6", "ValueError"),
        ("function picky raised ZeroDivisionError; where: models.py:6", "ZeroDivisionError"),
        ("took more than 60 s", ""),
        ("needed more than 2.0 GB: killed", ""),
        ("", ""),
    ],
)
def test_the_exception_is_named(error: str, exception: str) -> None:
    assert Failure("raised", error).exception == exception
