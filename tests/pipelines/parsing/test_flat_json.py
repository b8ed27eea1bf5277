"""Blocks that compiled loops read have the rows that the line-by-line reader gives them."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing import json_lines
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.compiled.flat_json import NotFlatError, can_read, flat_rows
from pipelines.parsing.json_lines import parse_json_block, slow_block
from tests.pipelines.parsing.test_clean_cells import COLUMNS, NUMBERS, TEXTS
from tests.support.examples import scaled

FLAT = {name: entry for name, entry in COLUMNS.items() if name not in ("thousands", "decimal")} | {
    "trimmed": {"type": "int64", "trim": True},
    "trimmed_text": {"type": "string", "trim": True},
    "bools": {"type": "bool", "separator": "|"},
    "written": {"type": "timestamp", "format": "%Y%m%d"},
}


def schema_of(names: list[str], null: tuple[str, ...] = ("",)) -> LogSchema:
    columns = [{"name": f"{name}{k}", **FLAT[name]} for k, name in enumerate(names)]
    return LogSchema.from_document({"format": "jsonl", "columns": columns, "null": list(null)})


def bits(value: object) -> object:
    """A float as its bits: NaN then equals itself, and -0.0 does not equal 0.0."""
    if isinstance(value, list):
        return [bits(one) for one in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


def is_flat(data: bytes, schema: LogSchema) -> bool:
    """Whether the loops read a block; the rows are then those of the definition."""
    block = LineBlock(1, data)
    try:
        flat = flat_rows(block, schema)
    except NotFlatError:
        return False
    if flat is None:
        return False
    slow = slow_block(block, schema)
    assert slow.rejects == ()
    flat.table.validate(full=True)
    assert flat.table.schema == slow.table.schema
    for name in flat.table.column_names:
        assert bits(flat.table[name].to_pylist()) == bits(slow.table[name].to_pylist())
    assert flat.notes == slow.notes
    return True


LITERALS = st.one_of(
    st.sampled_from([*NUMBERS, "null", "true", "false", "NaN", "-Infinity", "01", "1.", "-", "1e", "1e+", "1E+05", "1e22", "1e23", "1e-22", "1e-23", "0.30000000000000004",
                     "9007199254740991", "9007199254740992", "9007199254740993", "-9223372036854775808", "9999999999999999999", "99999999999999999999", "0.1e-5", "20260101",
                     "123456789012345678901234567890", "0.0000000000000000000000000000001", "[]", "{}", '{"a": 1}', "[1]", "nul", "truex"]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**64), 2**64).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(str),
)  # fmt: skip
STRINGS = st.one_of(
    st.sampled_from([*NUMBERS, *TEXTS]).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text(max_size=6).map(json.dumps),
    st.sampled_from(['"\\/\\b\\f\\n\\r\\t"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00a"', '"\\ud83dx"', '"\\u00e4\\u20AC"', '"\\u12"', '"\\x"', '"a\\', '"\\u0000"', '"a']),
)  # fmt: skip


@settings(max_examples=scaled(500))
@given(data=st.data())
def test_flat_blocks_have_the_rows_of_the_definition(data):
    names = data.draw(st.lists(st.sampled_from(list(FLAT)), min_size=1, max_size=3))
    schema = schema_of(names, data.draw(st.sampled_from([(), ("",), ("", "NULL", "a"), ("0", "7")])))
    assert can_read(schema)
    white = st.sampled_from(["", "", " ", "\t", "\r", "  "])
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        keys = data.draw(st.permutations([*schema.names, "other", "other"]))
        keys = keys[: data.draw(st.integers(0, len(keys)))]
        pairs = [
            f'{data.draw(white)}"{key}"{data.draw(white)}:{data.draw(white)}{data.draw(st.one_of(LITERALS, STRINGS))}{data.draw(white)}'
            for key in keys
        ]
        lines.append(data.draw(white) + "{" + ",".join(pairs) + "}" + data.draw(white))
    content = ("\n".join(lines) + data.draw(st.sampled_from(["", "\n"]))).encode("utf-8", "surrogatepass")
    is_flat(content, schema)
    at = data.draw(st.integers(0, len(content) - 1))
    is_flat(content[:at] + bytes([data.draw(st.integers(0, 255))]) + content[at + 1 :], schema)
    is_flat(content[:at], schema) if at else None


@settings(max_examples=scaled(100))
@given(
    st.lists(
        st.one_of(
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.builds("{}e{}".format, st.integers(-(2**64), 2**64), st.integers(-25, 25)),
            st.builds("{}.{}".format, st.integers(-(10**9), 10**9), st.integers(0, 10**12)),
        ),
        min_size=20,
        max_size=40,
    )
)
def test_floats_are_rounded_once(numbers):
    for one in numbers:  # by itself, since a number that is not known to be exact makes texts of all
        flat = flat_rows(LineBlock(1, f'{{"float640": {one}}}'.encode()), schema_of(["float64"]))
        assert flat is not None
        assert bits(flat.table.column(0).to_pylist()) == bits([float(one)])


@settings(max_examples=scaled(200))
@given(content=st.binary(min_size=1, max_size=40))
@example(b'{"int640": 1')
@example(b'{"int640"')
@example(b'{"int640": "\\u00')
@example(b"{}\n\n{}")
@example(b'{"int640": 1}\x00')
def test_any_bytes(content):
    is_flat(content, schema_of(["int64", "string"]))
    is_flat(b'{"int640": ' + content + b"}\n", schema_of(["int64", "string"]))
    is_flat(b'{"string0": "' + content + b'"}\n', schema_of(["string"]))


@pytest.mark.parametrize("name", list(FLAT))
def test_usual_rows_are_flat(name):
    values = {"bool": "true", "string": "red shoes", "trimmed_text": "näher", "iso": "2026-01-01T00:00:00Z", "list": "1|2", "bools": "true|0", "written": "20260101"}  # fmt: skip
    value = json.dumps(values.get(name, 12)) if name != "bool" else "true"
    schema = schema_of([name, "string"])
    assert is_flat(
        f'{{"{name}0": {value}, "string1": "a\\u00e4 \\"b\\"", "more": -1.5e3}}\r\n{{"{name}0": {value}}}'.encode(),
        schema,
    )
    if name in ("int64", "float64", "trimmed"):
        assert is_flat(f'{{"{name}0": "12"}}\n{{"{name}0": ""}}\n'.encode(), schema)


@pytest.mark.parametrize(
    "line", ['{"a": [1]}', '{"int640": 1, "int640": 1}', '{"\\u0061": 1}', "", "[]", '{"int640": 01}', '{"int640": 1,}', '{"int640": 1} x', '{"a": "\t"}']
)  # fmt: skip
def test_other_lines_are_left_to_others(line):
    with pytest.raises(NotFlatError):
        flat_rows(LineBlock(1, f'{{"int640": 1}}\n{line}\n{{"int640": 1}}\n'.encode()), schema_of(["int64"]))


def test_paths_lists_and_texts_of_json_are_left_to_others():
    for entry in (
        {"type": "int64", "path": ["a", "b"]},
        {"type": "int64", "list": True},
        {"type": "string", "json": True},
        {"type": "int64", "thousands": "."},
    ):
        schema = LogSchema.from_document({"format": "jsonl", "columns": [{"name": "x", **entry}]})
        assert not can_read(schema)


def test_a_large_block_with_a_bad_line_has_the_rows_of_the_definition(monkeypatch):
    tried = []

    def counted(block, schema):
        found = flat_rows(block, schema)
        tried.append((block.lines, found is not None))
        return found

    monkeypatch.setattr(json_lines, "flat_rows", counted)
    monkeypatch.setattr(json_lines, "FLAT_BYTES", 1 << 16)
    draw = np.random.default_rng(3)
    rows = [
        {"int640": int(one), "float641": round(float(one) / 7, 2), "string2": f"text {one}"}
        for one in draw.integers(0, 1000, 9_000)
    ]
    lines = [json.dumps(row).encode() for row in rows]
    lines[5_000] = b'{"int640": 1.5}'
    parsed = parse_json_block(LineBlock(7, b"\n".join(lines)), schema_of(["int64", "float64", "string"]))
    assert [(reject.line, reject.column) for reject in parsed.rejects] == [(5_007, "int640")]
    assert parsed.table.to_pylist() == [row for at, row in enumerate(rows) if at != 5_000]
    assert tried[:2] == [(9_000, False), (4_096, True)]
