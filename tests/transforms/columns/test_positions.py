"""Kernels refuse data whose positions exceed 32 bits."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from tests.transforms.adversarial import COMPUTABLE, acceptable_types, arrow_column, operands_for, operation
from tests.transforms.operators.parameters import ALIGNED, GOLDEN_PARAMS
from transforms.columns import positions
from transforms.columns.columns import Numbers, RaggedItems, Strings, cast_to_layout, from_arrow
from transforms.errors import DataError
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import Expr
from transforms.kernels import fused, text, web
from transforms.kernels.arrow import to_arrow
from transforms.kernels.buffers import one_buffer
from transforms.kernels.text_patterns import arrow_text, replace
from transforms.kernels.text_validity import replaced
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

# Both take POSITION_MAX when they are imported, which must not be while a test has lowered it.
importlib.import_module("transforms.kernels.list_items")
importlib.import_module("transforms.kernels.parquet_pages")

LIMIT = 400
_TEXT = Dense(DType.STRING)

#: Operators whose result has more bytes or items than they are given, over columns that fit the limit.
GROWING: dict[str, tuple[Callable[[], Expr], list[Any]]] = {
    "replace": (lambda: hr.text("a").replace("x", "y" * 50), ["x" * 10]),
    "replace by longer parts": (lambda: hr.text("a").replace("xx", "yyy" * 20), ["x" * 30]),
    "regex_replace by a constant": (lambda: hr.text("a").regex_replace("x", "y" * 50), ["x" * 10]),
    "regex_replace by groups": (lambda: hr.text("a").regex_replace("(x+)", r"\1" * 9 + r"\0"), ["x" * 50]),
    "regex_replace of nothing": (lambda: hr.text("a").regex_replace("", "y" * 50), ["x" * 10]),
    "ngrams": (lambda: hr.text("a").unigrams().ngrams(3, joiner="-" * 20), ["a b c d e f g h i j k l m n"]),
    "char_ngrams": (lambda: hr.text("a").char_ngrams(20), ["x" * 60]),
    "upper": (lambda: hr.text("a").upper(), ["\u0390" * 100]),
    "normalize": (lambda: hr.text("a").normalize(), ["\ufdfa" * 15]),
    "concat": (lambda: hr.concat(*[hr.text("a").split(",")] * 3), ["x," * 180]),
    "zip": (lambda: hr.text("a").split(",").zip(hr.text("a").split(","), joiner="-" * 20), ["x,y," * 10]),
    "cast": (lambda: hr.int64("a").cast("string"), [2**62] * 40),
    "ip_prefix": (lambda: hr.text("a").ip_prefix(), ["1.2.3.4"] * 20),
    "fill_null": (lambda: hr.text("a").fill_null("y" * 50), [None] * 20),
    "pad": (lambda: hr.text("a").split(",").pad(500, value="y"), ["x"]),
    "lookup": (lambda: hr.text("a").lookup({"x": "y" * 50}), ["x"] * 20),
}  # fmt: skip


def _failures(expression: Expr, values: list[Any]) -> dict[str, str]:
    kind = pa.int64() if isinstance(values[0], int) else pa.string()
    result = compile_plan({"it": expression.node}).run(pa.table({"a": pa.array(values, kind)}))
    return {key: failure.error for key, failure in result.failures.items()}


@pytest.mark.medium
@pytest.mark.parametrize("name", GROWING)
def test_what_grows_beyond_a_position_is_refused_with_its_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expression, values = GROWING[name]
    assert not _failures(expression(), values)
    monkeypatch.setattr(positions, "POSITION_MAX", LIMIT)
    assert f"of one batch must fit in {LIMIT}, got " in _failures(expression(), values)["it"]


ITEMS: dict[DType, list[Any]] = {
    DType.BOOL: [True, False],
    DType.INT64: [7, -(2**63)],
    DType.FLOAT32: [0.5, -1.0],
    DType.FLOAT64: [0.25, 8.0],
    DType.STRING: ["ab cd,e", "http://a.b/c%20d/e?q=%41+z", '{"a": ["b\\u00e9"]}', "10.2.3.4", "\u0390 \ufdfa", None],
    DType.TIMESTAMP: [0, 10**15],
}  # fmt: skip


def _rows(column_type: ColumnType) -> list[Any]:
    items = [item for item in ITEMS[column_type.dtype] if item is not None]
    match column_type:
        case Dense():
            return [*ITEMS[column_type.dtype], items[0]]
        case Weighted():
            return [[(item, 0.5) for item in items * 2], []]
        case Vector(size=size):
            return [(items * size)[:size]] * 2
        case _:
            return [items * 2, []]


def _columns(operator_name: str, types: tuple[ColumnType, ...]) -> list[list[Any]]:
    drawn = [_rows(column_type) for column_type in types]
    rows = min(map(len, drawn))
    lists = [at for at in drawn if isinstance(at[0], list)]
    for row in range(rows if lists and operator_name in ALIGNED else 0):
        shortest = min(len(at[row]) for at in lists)
        for at in lists:
            at[row] = at[row][:shortest]
    return [at[:rows] for at in drawn]


@pytest.mark.parametrize("limit", [12, 90])
@pytest.mark.parametrize("operator", COMPUTABLE, ids=lambda operator: operator.name)
def test_every_operator_gives_what_positions_can_tell_or_refuses(
    operator: Any, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for params in GOLDEN_PARAMS.get(operator.name, [{}])[:2]:
        types = min(acceptable_types(operator, operator.bind_params(params)), key=len)
        root = operation(operator.name, operands_for(operator, types), params)
        arrays = [arrow_column(at, kind) for at, kind in zip(_columns(operator.name, types), types, strict=True)]
        batch = pa.table({f"c{i}": array for i, array in enumerate(arrays)})
        compiled = compile_plan({"it": root}, lambda digest: pa.array(["ab", "Red", "Shoes"]))
        monkeypatch.setattr(positions, "POSITION_MAX", limit)
        result = compiled.run(batch)
        monkeypatch.undo()
        for failure in result.failures.values():
            assert f"must fit in {limit}, got " in failure.error
        for column in result.columns.values():
            assert _longest(column) <= limit


def _longest(array: pa.Array) -> int:
    """The greatest offset of an array, or of its items."""
    own = 0
    if pa.types.is_string(array.type) or pa.types.is_list(array.type):
        own = int(np.frombuffer(array.buffers()[1], np.int32)[: len(array) + 1].max(initial=0)) if len(array) else 0
    return max(own, _longest(array.values)) if pa.types.is_list(array.type) else own


def test_a_batch_of_more_rows_than_positions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "POSITION_MAX", LIMIT)
    with pytest.raises(DataError, match=f"rows of one batch must fit in {LIMIT}, got 401"):
        compile_plan({"it": hr.int64("a").node}).run(pa.table({"a": [1] * 401}))


def test_a_dictionary_of_long_texts_is_not_decoded_beyond_positions() -> None:
    """Arrow decodes it to offsets that wrap, and says nothing."""
    coded = pa.DictionaryArray.from_arrays(pa.array([0] * 2100, pa.int16()), pa.array(["x" * 2**20]))
    with pytest.raises(DataError, match=f"must fit in {positions.POSITION_MAX}, got {2100 * 2**20}"):
        cast_to_layout(coded, _TEXT)
    lists = pa.ListArray.from_arrays(pa.array([0, 2100], pa.int32()), coded)
    with pytest.raises(DataError, match=f"got {2100 * 2**20}"):
        cast_to_layout(lists, Ragged(DType.STRING))
    with pytest.raises(DataError, match="chunks of one column"):
        from_arrow(pa.chunked_array([coded.dictionary] * 2100), _TEXT)


def test_texts_that_repeat_their_bytes_are_counted_as_often_as_they_stand() -> None:
    data = np.full(2**20, 97, np.uint8)
    repeating = Strings(data, np.zeros(5000, np.int32), np.full(5000, 2**20, np.int32))
    copying: list[Callable[[Strings], object]] = [lambda column: to_arrow(column, _TEXT), web.device_model, arrow_text]
    for kernel in copying:
        with pytest.raises(DataError, match=f"bytes of text of one batch must fit in .*, got {5000 * 2**20}"):
            kernel(repeating)
    cutting: list[Callable[[Strings], object]] = [
        text.unigrams, web.url_path_tokens, lambda column: text.split(column, sep=","),
        lambda column: fused.hashed_words(column, buckets=7, salt=""), lambda column: fused.common_words(column, column),
    ]  # fmt: skip
    for kernel in cutting:
        with pytest.raises(DataError, match=f"pieces of text of one batch must fit in .*, got {5000 * 2**19}"):
            kernel(repeating)


def test_text_that_replacing_makes_longer_than_positions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = pa.py_buffer(np.array([0, 200], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff" * 200)])
    assert replaced(broken).to_pylist() == ["\ufffd" * 200]
    monkeypatch.setattr(positions, "POSITION_MAX", LIMIT)
    with pytest.raises(DataError, match="bytes of text of one batch must fit in 400, got 600"):
        replaced(broken)


def test_offsets_of_64_bits_are_not_cut() -> None:
    with pytest.raises(DataError, match=f"got {2**31}"):
        to_arrow(RaggedItems(np.array([0, 2**31]), Numbers(np.zeros(0, np.int64))), Ragged(DType.INT64))


def test_several_buffers_are_merged_only_where_positions_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.full(1, 300, np.int32)
    texts = [Strings(np.full(300, byte, np.uint8), np.zeros(1, np.int32), ends) for byte in (97, 98)]
    assert len(one_buffer(texts)[0].data) == 600
    monkeypatch.setattr(positions, "POSITION_MAX", LIMIT)
    with pytest.raises(DataError, match="bytes of text of one batch must fit in 400, got 600"):
        one_buffer(texts)


def test_replacing_in_parts_gives_what_replacing_at_once_does(monkeypatch: pytest.MonkeyPatch) -> None:
    column = from_arrow(pa.array(["xx" * (i % 7) + "\u00e9" for i in range(50)]), _TEXT)
    at_once = to_arrow(replace(column, old="x", new="y\u00e9"), _TEXT)
    monkeypatch.setattr(positions, "POSITION_MAX", len(at_once.buffers()[2]))
    assert to_arrow(replace(column, old="x", new="y\u00e9"), _TEXT).equals(at_once)
    monkeypatch.setattr(positions, "POSITION_MAX", len(at_once.buffers()[2]) - 1)
    with pytest.raises(DataError, match="bytes of text"):
        replace(column, old="x", new="y\u00e9")


@pytest.mark.slow
def test_text_that_grows_beyond_2_gib_is_refused() -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < 10 * 2**30:
        pytest.skip("needs 10 GiB of free memory")
    rows = pa.array(["x" * 1000] * 114_000)
    for expression in (hr.text("a").replace("x", "y" * 20), hr.text("a").regex_replace("x", "y" * 20)):
        assert (
            "must fit in 2147483647, got 2"
            in compile_plan({"it": expression.node}).run(pa.table({"a": rows})).failures["it"].error
        )
    result = compile_plan({"it": hr.text("a").replace("x", "y" * 18).node}).run(pa.table({"a": rows}))
    assert not result.failures
    assert len(result.columns["it"].buffers()[2]) == 114_000 * 18_000
