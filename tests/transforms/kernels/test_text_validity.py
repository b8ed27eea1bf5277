"""The validation before kernels accepts only valid arrays, and names what it refuses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from transforms.errors import DataError, InvalidText
from transforms.execution.plan import compile_plan
from transforms.kernels.spans import frozen
from transforms.kernels.text_validity import check_array, replaced
from transforms.kernels.utf8 import is_utf8

INVALID = {
    "Latin-1": b"Z\xfcrich",
    "a stray continuation": b"a\x80b",
    "a cut character": "é".encode()[:1],
    "a cut character of four": "😀".encode()[:3],
    "overlong": b"\xc0\xaf",
    "overlong of three": b"\xe0\x80\xaf",
    "a lone surrogate": b"\xed\xa0\x80",
    "above the last character": b"\xf4\x90\x80\x80",
    "no byte of UTF-8": b"\xff",
}
TEXT = pa.string()
#: Pieces that are whole, that become whole together, and that never do.
PIECES = st.sampled_from(
    [b"", b"a", b"\xc3", b"\xa9", b"\xe2\x82\xac", b"\xe2", b"\x82", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xff"]
)
TEXTS = st.lists(st.none() | st.lists(PIECES, max_size=5).map(b"".join) | st.binary(max_size=20), max_size=12)


def as_text(values: Sequence[bytes | None], kind: pa.DataType = TEXT) -> pa.Array:
    """The bytes as an array that says it is text."""
    held = pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(kind, len(held), held.buffers(), held.null_count)


def spans(offsets: Sequence[int], data: bytes, kind: pa.DataType = TEXT) -> pa.Array:
    wide = np.int64 if kind == pa.large_string() else np.int32
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(np.array(offsets, wide)), pa.py_buffer(data)]
    )


def decodes(text: bytes | None) -> bool:
    try:
        return text is None or text.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


@given(TEXTS, st.sampled_from([pa.string(), pa.large_string()]), st.integers(0, 3), st.integers(0, 3))
def test_text_passes_exactly_where_python_decodes_it(values, kind, before, after) -> None:
    around = [b"\xff"] * 3
    array = as_text([*around[:before], *values, *around[:after]], kind).slice(before, len(values))
    invalid = [row for row, value in enumerate(values) if not decodes(value)]
    if invalid:
        with pytest.raises(InvalidText) as caught:
            check_array(array)
        assert (caught.value.row, caught.value.text) == (invalid[0], values[invalid[0]])
    else:
        check_array(array)
    expected = [None if value is None else value.decode("utf-8", "replace") for value in values]
    assert replaced(array).to_pylist() == expected
    check_array(replaced(array))


@given(TEXTS, st.integers(1, 5))
def test_rows_are_counted_over_chunks(values, size) -> None:
    chunks = [as_text(values[at : at + size]) for at in range(0, len(values), size)]
    array = pa.chunked_array(chunks, pa.string())
    invalid = [row for row, value in enumerate(values) if not decodes(value)]
    if invalid:
        with pytest.raises(InvalidText) as caught:
            check_array(array)
        assert caught.value.row == invalid[0]
    else:
        check_array(array)
    assert replaced(array).to_pylist() == [
        None if value is None else value.decode("utf-8", "replace") for value in values
    ]


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_invalid_text_is_found_however_deep(text: bytes) -> None:
    flat = as_text([b"whole", None, text, b"last"])
    codes = pa.array([0, None, 2, 1], pa.int8())
    nested = {
        "dictionary": pa.DictionaryArray.from_arrays(codes, flat, safe=False),
        "list": pa.ListArray.from_arrays(pa.array([0, 1, 1, 4], pa.int32()), flat),
        "large list": pa.LargeListArray.from_arrays(pa.array([0, 1, 1, 4], pa.int64()), flat),
        "vector": pa.FixedSizeListArray.from_arrays(flat, 2),
        "struct": pa.StructArray.from_arrays([flat, pa.array([1, 2, 3, 4])], ["id", "weight"]),
    }
    rows = {"dictionary": 2, "list": 2, "large list": 2, "vector": 1, "struct": 2}
    for name, array in nested.items():
        with pytest.raises(InvalidText) as caught:
            check_array(array)
        assert (caught.value.row, caught.value.text) == (rows[name], text), name
        mended = replaced(array)
        check_array(mended)
        assert repr(text.decode("utf-8", "replace")) in repr(mended.to_pylist()), name
        assert len(mended) == len(array)


def test_what_stands_beneath_a_null_is_not_text() -> None:
    array = spans([0, 2, 4], b"\xff\xffok")
    beneath = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x02"), *array.buffers()[1:]], 1)
    check_array(beneath)
    assert compile_plan({"it": hr.text("a").upper().node}).run(pa.table({"a": beneath})).columns["it"].to_pylist() == [
        None,
        "OK",
    ]


def test_a_dictionary_may_not_hold_invalid_text_that_no_row_has() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), as_text([b"a", b"\xff"]), safe=False)
    with pytest.raises(InvalidText) as caught:
        check_array(array)
    assert caught.value.row is None
    assert replaced(array).to_pylist() == ["a", "a"]


def unsound() -> dict[str, pa.Array]:
    codes = pa.array(["a", "b"]).dictionary_encode().dictionary
    lists = pa.array([[1, 2], [3]]).buffers()
    descending = pa.py_buffer(np.array([0, 3, 1], np.int32))
    found = {
        "offsets of text that descend": spans([0, 5, 2, 6], b"abcdef"),
        "of large text": spans([0, 5, 2, 6], b"abcdef", pa.large_string()),
        "offsets of bytes that descend": spans([0, 5, 2, 6], b"abcdef").view(pa.binary()),
        "beyond 2**31 and back": spans([0, 2**31 - 1, 6], b"abcdef"),
        "negative in between": spans([0, -(2**31), 6], b"abcdef"),
        "lists that descend": pa.Array.from_buffers(
            pa.list_(pa.int64()), 2, [None, descending], 0, 0, [pa.array([1, 2, 3])]
        ),
    }
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        for code in (2, -1, 127):
            indices = pa.array([0, code], kind)
            found[f"code {code} of {kind}"] = pa.DictionaryArray.from_arrays(indices, codes, safe=False)
    assert lists
    return found


@pytest.mark.parametrize("array", unsound().values(), ids=unsound())
def test_an_array_that_points_outside_of_its_buffers_is_refused(array: pa.Array) -> None:
    for each in (array, pa.chunked_array([array]), pa.StructArray.from_arrays([array], ["a"])):
        with pytest.raises(DataError, match="must point inside of its own buffers") as caught:
            check_array(each)
        assert not isinstance(caught.value, InvalidText)
        with pytest.raises(DataError, match="must point inside of its own buffers"):
            replaced(each)


def test_codes_behind_nulls_do_not_count() -> None:
    indices = pa.Array.from_buffers(
        pa.int32(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 99], np.int32))], 1
    )
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    check_array(array)


@pytest.mark.parametrize(
    "array",
    [pa.array([], pa.string()), pa.array([None, None], pa.string()), pa.array([], pa.list_(pa.string())), pa.nulls(3),
     pa.array([1.5, None]), pa.array([True, None]), pa.array(["a"]).cast(pa.string_view()), pa.array([b"\xff"]),
     pa.array([{"a": 1}, None]), pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))],
    ids=str,
)  # fmt: skip
def test_other_arrays_pass(array: pa.Array) -> None:
    check_array(array)
    assert replaced(array).equals(array)


def test_a_plan_refuses_what_it_would_follow_out_of_its_buffers() -> None:
    """With ``edit_distance`` over such text, a component that reads only numbers gave other values."""
    plan = compile_plan({
        "distance": hr.text("a").edit_distance(hr.text("b")).node,
        "number": (hr.int64("n") * 2).node,
    })  # fmt: skip
    rows = 1000
    names = pa.table(
        {"a": as_text([b"Z\xfcrich" * 9] * rows), "b": as_text([b"\xf0" * 7] * rows), "n": pa.array(range(rows))}
    )
    with pytest.raises(InvalidText, match="text must be UTF-8") as caught:
        plan.run(names)
    assert (caught.value.where, caught.value.row) == ("column a, row 0", 0)
    assert (
        plan.run(names.set_column(0, "a", pa.array(["x"] * rows)).set_column(1, "b", pa.array(["y"] * rows)))
        .columns["number"][7]
        .as_py()
        == 14
    )


def test_unread_columns_are_no_matter() -> None:
    plan = compile_plan({"number": (hr.int64("n") * 2).node})
    assert plan.run(pa.table({"a": as_text([b"\xff"]), "n": [1]})).columns["number"].to_pylist() == [2]


@given(
    st.lists(PIECES | st.binary(max_size=4) | st.integers(55, 70).map(lambda size: b"x" * size), max_size=12).map(
        b"".join
    )
)
def test_bytes_are_utf8_exactly_where_python_decodes_them(text: bytes) -> None:
    """At every distance from the blocks of 64 bytes that are looked at together."""
    assert is_utf8(frozen(np.frombuffer(text, np.uint8))) == decodes(text)


def test_every_lead_and_second_byte() -> None:
    for behind in (0, 61, 62, 63, 64):
        for lead, second in itertools.product(
            range(0x80, 0x100), (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
        ):
            for rest in (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80"):
                text = b"y" * behind + bytes([lead, second]) + rest + b"z" * 70
                assert is_utf8(frozen(np.frombuffer(text, np.uint8))) == decodes(text), text
