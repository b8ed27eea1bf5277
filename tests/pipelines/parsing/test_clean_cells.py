"""Blocks that Arrow converts by itself have the rows that the definition gives them."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing import clean_cells
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.clean_cells import arrow_types, clean_rows
from pipelines.parsing.compiled.unquoted_cells import NotPlainError, unquoted_rows
from pipelines.parsing.delimited_lines import Layout
from pipelines.parsing.log import parse_block, parse_whole_log, read_records
from pipelines.parsing.openings import syntax_of
from pipelines.parsing.typed_rows import ParsedBlock
from tests.pipelines.logs import write_log
from tests.support.examples import scaled

COLUMNS: dict[str, dict[str, object]] = {
    "int64": {"type": "int64"},
    "needed": {"type": "int64", "required": True},
    "hexadecimal": {"type": "int64", "hexadecimal": True},
    "thousands": {"type": "int64", "thousands": "."},
    "float32": {"type": "float32"},
    "float64": {"type": "float64"},
    "non_finite": {"type": "float64", "non_finite": True},
    "decimal": {"type": "float64", "decimal": ","},
    "bool": {"type": "bool"},
    "string": {"type": "string"},
    "list": {"type": "int64", "separator": "|"},
    "seconds": {"type": "timestamp", "unit": "s"},
    "nanoseconds": {"type": "timestamp", "unit": "ns"},
    "iso": {"type": "timestamp", "unit": "iso8601"},
}
NUMBERS = ["0", "-0", "7", "-12", "007", "+5", "9223372036854775807", "9223372036854775808", "1.5", "-0.0", "1e3", "1e400", "1E-400", ".5",
           "5.", "0x1F", "0X1f", "-0x1", "1_000", "1.000", "1,5", "nan", "NaN", "inf", "-Infinity", " 5", "5 ", "\t5", "5\t", "3.4e38", "0.1",
           "1e-45", "4.9e-324", "16777217", "253402300799", "253402300800", "-62135596800", "-99999999999", "0|1", "1||2", "|"]  # fmt: skip
TEXTS = ["", "NULL", " ", " NULL", "a", "grün", "0x", "x", "true", "FALSE", "True", "1", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00.1234567", "-", "\ufeff"]  # fmt: skip


def schema_of(names: list[str], **entries: object) -> LogSchema:
    columns = [{"name": f"{name}{k}", **COLUMNS[name]} for k, name in enumerate(names)]
    return LogSchema.from_document({"format": "csv", "columns": columns, **entries})


def ways_of(data: bytes, schema: LogSchema) -> list[tuple[bool, bool]]:
    """Whether the loops and Arrow read each of a file's blocks; the rows are then those of the definition."""
    layout = Layout(
        syntax_of(schema), len(schema.columns), tuple(range(len(schema.columns))), schema.trailing_delimiter
    )
    types = arrow_types(schema, layout)
    found = []
    for block in read_records([LineBlock(1, data)], schema, 1 << 20):
        assert isinstance(block, LineBlock)
        ways = [by_loops(block, schema, layout), None if types is None else clean_rows(block, schema, layout, types)]
        found.append(tuple(one is not None for one in ways))
        for clean in ways:
            if clean is not None:
                assert_defined(clean, block, schema, layout)
    return found


def by_loops(block: LineBlock, schema: LogSchema, layout: Layout) -> ParsedBlock | None:
    try:
        return unquoted_rows(block, schema, layout)
    except NotPlainError:
        return None


def assert_defined(clean: ParsedBlock, block: LineBlock, schema: LogSchema, layout: Layout) -> None:
    """The rows are those of the definition, which rejects none."""
    defined = parse_block(block, schema, layout)
    assert defined.rejects == ()
    assert clean.places is None
    clean.table.validate(full=True)
    assert clean.table.schema == defined.table.schema
    for name in clean.table.column_names:
        assert bits(clean.table[name].to_pylist()) == bits(defined.table[name].to_pylist())
    assert clean.notes == defined.notes


def bits(value: object) -> object:
    """A float as its bits: NaN then equals itself, and -0.0 does not equal 0.0."""
    if isinstance(value, list):
        return [bits(one) for one in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


@settings(max_examples=scaled(400))
@given(data=st.data())
def test_clean_blocks_have_the_rows_of_the_definition(data):
    names = data.draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3))
    delimiter = data.draw(st.sampled_from([",", ";", "\t", " ", "|"]))
    null = data.draw(st.sampled_from([[], [""], ["", "NULL"], ["0"], ["", "-12"]]))
    escape = data.draw(st.sampled_from(["", "", "\\"]))
    schema = schema_of(names, delimiter=delimiter, null=null, **({"escape": escape} if escape else {}))
    if data.draw(st.booleans()):
        schema = replace(schema, columns=tuple(replace(column, trim=True) for column in schema.columns))
    cells = st.one_of(
        st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.text('01 .x"\t,\nä\\', max_size=4), st.integers(-(2**64), 2**64).map(str),
        st.floats().map(repr), st.builds("{}e{}".format, st.integers(0, 2**60), st.integers(-25, 25)),
    )  # fmt: skip
    ends = data.draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.lists(cells, min_size=len(names), max_size=len(names)))
        quoted = [
            '"' + cell.replace('"', '""') + '"'
            if any(mark in cell for mark in (delimiter, '"', "\n")) or data.draw(st.integers(0, 9)) == 0
            else cell
            for cell in row
        ]
        lines.append(delimiter.join(quoted) + ends)
    content = "".join(lines).encode()
    ways_of(content, schema)
    at = data.draw(st.integers(0, len(content) - 1))
    ways_of(content[:at] + bytes([data.draw(st.integers(0, 255))]) + content[at + 1 :], schema)


@settings(max_examples=scaled(200))
@given(content=st.binary(max_size=60))
@example(b"1,2")
@example(b'" 5",1\n')
@example(b'1,"\t5"\n')
def test_any_bytes(content):
    for names in (["int64", "string"], ["seconds", "float64"]):
        for delimiter in (",", "\t"):
            if content:
                ways_of(content, schema_of(names, delimiter=delimiter))
            ways_of(b"1," + content + b",1\n", schema_of(["seconds", *names], delimiter=","))


@pytest.mark.parametrize("name", list(COLUMNS))
def test_usual_rows_are_clean(name):
    cells = {
        "bool": ["true", "0"],
        "string": ["red shoes", "näher"],
        "iso": ["2026-01-01T00:00:00Z"] * 2,
        "list": ["1|2", "3"],
    }
    first, second = cells.get(name, ["12", "-3"])
    content = f"{first},a b\n{second},\r\n{second},c"
    assert ways_of(content.encode(), schema_of([name, "string"])) == [(True, True)]
    assert ways_of(content.replace(second, f'"{second}"').encode(), schema_of([name, "string"])) == [(False, True)]


@pytest.mark.parametrize("cell", [" 5", "5 ", "5\t", '" 5"', "0x1F", "", "five", "1.5"])
def test_what_is_no_number_of_the_definition_is_left_to_it(cell):
    assert ways_of(f"1,a\n{cell},b\n".encode(), schema_of(["needed", "string"])) == [(False, False)]


def test_after_a_bad_row_blocks_are_left_to_the_definition_for_a_while(tmp_path, monkeypatch):
    tried = []

    def counted(block, *others):
        found = clean_rows(block, *others)
        tried.append(found is not None)
        return found

    monkeypatch.setattr(clean_cells, "clean_rows", counted)
    monkeypatch.setattr(clean_cells, "LOOPS_BYTES", 1 << 30)
    rows = [f"{k},a" for k in range(20 * (1 << 16))]
    rows[2 * (1 << 16) + 5] = "bad,a"
    found = parse_whole_log(write_log(tmp_path / "log", "\n".join(rows) + "\n"), schema_of(["int64", "string"]))
    assert found.table.num_rows == len(rows) - 1
    assert [reject.line for reject in found.rejects] == [2 * (1 << 16) + 6]
    assert tried[:4] == [True, True, False, True]
    assert found.table.column(0).to_pylist() == [k for k in range(len(rows)) if k != 2 * (1 << 16) + 5]


def test_a_large_file_is_read_by_the_loops_but_for_blocks_with_quotes(tmp_path, monkeypatch):
    read = []

    def counted(block, *others):
        try:
            found = unquoted_rows(block, *others)
        except NotPlainError:
            read.append(None)
            raise
        read.append(found is not None)
        return found

    monkeypatch.setattr(clean_cells, "unquoted_rows", counted)
    monkeypatch.setattr(clean_cells, "LOOPS_BYTES", 1 << 10)
    rows = [f"{k},text {k}" for k in range(5 * (1 << 16))]
    rows[(1 << 16) + 5] = '7,"quoted"'
    rows[3 * (1 << 16) + 5] = "7.5,text"
    found = parse_whole_log(write_log(tmp_path / "log", "\n".join(rows) + "\n"), schema_of(["int64", "string"]))
    assert [reject.line for reject in found.rejects] == [3 * (1 << 16) + 6]
    assert found.table.num_rows == len(rows) - 1
    assert found.table.column(1)[(1 << 16) + 5].as_py() == "quoted"
    assert read[0] is True
    assert None in read
    assert False in read


def test_a_number_may_spell_a_missing_value():
    for name in ("int64", "float64", "seconds"):
        ways_of(b"-12,a\n3,b\n", schema_of([name, "string"], null=["", "-12"]))
        assert ways_of(b"3,a\n,b\n", schema_of([name, "string"], null=["", "-12"])) == [(True, True)]
