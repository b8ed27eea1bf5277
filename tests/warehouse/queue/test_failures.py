"""Failures as documents."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headrace.screens.tasks import sample_values
from warehouse import Failure
from warehouse.queue.failures import encoded_sample


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


def _text_of(content: bytes) -> pa.Array:
    """One text of these bytes, as a file that nobody validated holds it."""
    offsets = pa.array([0, len(content)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(content)])


LATIN = _text_of("Gr\xfcn".encode("latin-1"))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (LATIN, "Gr\\xfcn"),
        (LATIN.dictionary_encode(), "Gr\\xfcn"),
        (pa.ListArray.from_arrays(pa.array([0, 1]), LATIN), ["Gr\\xfcn"]),
        (pa.array([2**62], pa.timestamp("s")), str(2**62)),
        (pa.array([2**30], pa.date32()), str(2**30)),
        (pa.array([7], pa.timestamp("us", tz="Nowhere/At_All")), "7"),
        (pa.array([{"a": 2**30}], pa.struct([("a", pa.date32())])), {"a": str(2**30)}),
        (pa.array([None], pa.string()), None),
        (pa.array([3]), 3),
    ],
)
def test_an_event_without_a_python_value_can_be_shown(column: pa.Array, said: object) -> None:
    rows = pa.table({"it": column})
    failure = Failure("raised", "ValueError: no", "lower", "lower(it)", (5,), encoded_sample(rows))
    told = failure.message.partition("; event 5: ")[2]
    assert json.loads(told) == {"it": said}
    assert sample_values(rows) == ({"it": said},)
