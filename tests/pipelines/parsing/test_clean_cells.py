"""Blocks that Arrow converts by itself have the rows that the definition gives them."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing import clean_cells
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.clean_cells import arrow_types, clean_rows
from pipelines.parsing.delimited_lines import Layout
from pipelines.parsing.log import parse_block, parse_whole_log, read_records
from pipelines.parsing.openings import syntax_of
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


def both(data: bytes, schema: LogSchema) -> bool:
    """Whether a file's blocks are clean; those that are have equal rows by both ways."""
    layout = Layout(
        syntax_of(schema), len(schema.columns), tuple(range(len(schema.columns))), schema.trailing_delimiter
    )
    types = arrow_types(schema, layout)
    if types is None:
        return False
    found = []
    for block in read_records([LineBlock(1, data)], schema, 1 << 20):
        assert isinstance(block, LineBlock)
        clean = clean_rows(block, schema, layout, types)
        found.append(clean is not None)
        if clean is not None:
            defined = parse_block(block, schema, layout)
            assert defined.rejects == ()
            assert clean.places is None
            clean.table.validate(full=True)
            # As text, so that NaN equals itself and -0.0 does not equal 0.0.
            assert str(clean.table.to_pylist()) == str(defined.table.to_pylist())
            assert clean.table.schema == defined.table.schema
            assert clean.notes == defined.notes
    return all(found)


@settings(max_examples=scaled(400))
@given(data=st.data())
def test_clean_blocks_have_the_rows_of_the_definition(data):
    names = data.draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=3))
    delimiter = data.draw(st.sampled_from([",", ";", "\t", " ", "|"]))
    schema = schema_of(names, delimiter=delimiter, null=data.draw(st.sampled_from([[], [""], ["", "NULL"], ["0"]])))
    cells = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.text('01 .x"\t,\nä', max_size=4))
    ends = data.draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.lists(cells, min_size=len(names), max_size=len(names)))
        quoted = [
            '"' + cell.replace('"', '""') + '"'
            if any(mark in cell for mark in (delimiter, '"', "\n")) or data.draw(st.booleans())
            else cell
            for cell in row
        ]
        lines.append(delimiter.join(quoted) + ends)
    content = "".join(lines).encode()
    both(content, schema)
    at = data.draw(st.integers(0, len(content) - 1))
    both(content[:at] + bytes([data.draw(st.integers(0, 255))]) + content[at + 1 :], schema)


@settings(max_examples=scaled(200))
@given(content=st.binary(max_size=60))
@example(b"1,2")
@example(b'" 5",1\n')
@example(b'1,"\t5"\n')
def test_any_bytes(content):
    for names in (["int64", "string"], ["seconds", "float64"]):
        for delimiter in (",", "\t"):
            if content:
                both(content, schema_of(names, delimiter=delimiter))


@pytest.mark.parametrize("name", list(COLUMNS))
def test_usual_rows_are_clean(name):
    cells = {
        "bool": ["true", "0"],
        "string": ["red shoes", "näher"],
        "iso": ["2026-01-01T00:00:00Z"] * 2,
        "list": ["1|2", ""],
    }
    first, second = cells.get(name, ["12", "-3"])
    assert both(f"{first},a b\n{second},\n".encode(), schema_of([name, "string"]))


@pytest.mark.parametrize("cell", [" 5", "5 ", "5\t", '" 5"', "0x1F", "", "five", "1.5"])
def test_what_is_no_number_of_the_definition_is_left_to_it(cell):
    assert not both(f"1,a\n{cell},b\n".encode(), schema_of(["needed", "string"]))


def test_after_a_bad_row_blocks_are_left_to_the_definition_for_a_while(tmp_path, monkeypatch):
    tried = []

    def counted(block, *others):
        found = clean_rows(block, *others)
        tried.append(found is not None)
        return found

    monkeypatch.setattr(clean_cells, "clean_rows", counted)
    rows = [f"{k},a" for k in range(20 * (1 << 16))]
    rows[2 * (1 << 16) + 5] = "bad,a"
    found = parse_whole_log(write_log(tmp_path / "log", "\n".join(rows) + "\n"), schema_of(["int64", "string"]))
    assert found.table.num_rows == len(rows) - 1
    assert [reject.line for reject in found.rejects] == [2 * (1 << 16) + 6]
    assert tried[:4] == [True, True, False, True]
    assert found.table.column(0).to_pylist() == [k for k in range(len(rows)) if k != 2 * (1 << 16) + 5]
