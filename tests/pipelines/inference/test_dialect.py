"""How rows are delimited, and whether the first one is a header."""

from __future__ import annotations

import pytest

from pipelines.errors import UnknownFormat
from pipelines.inference.dialect import Dialect, detect_dialect


def dialect_of(*lines: str) -> Dialect:
    return detect_dialect("".join(f"{line}\n" for line in lines).encode(), "log")


def test_columns_without_a_name_are_named_in_a_doubt():
    rows = [f"{at},u{at},{at * 3}" for at in range(20)]
    first = dialect_of(",user,price", *rows)  # row numbers
    assert first.header == ("", "user", "price")
    assert "column 1 has no name in the header and is skipped" in first.unsure
    last = dialect_of("id,user,", *rows)
    assert (last.header, last.width, last.trailing) == (("id", "user", ""), 3, False)
    assert "column 3 has no name in the header and is skipped" in last.unsure


def test_a_delimiter_after_the_header_and_the_rows_is_no_column():
    found = dialect_of("id,user,", *(f"{at},u{at}," for at in range(20)))
    assert (found.header, found.width, found.trailing) == (("id", "user"), 2, True)


@pytest.mark.parametrize("row", ["{0},u{0},{0}", "one,two,three"])
@pytest.mark.parametrize("names", ["id,user", "id,user,a,b"])
def test_rows_of_another_width_than_the_header_are_one_error_with_both(names, row):
    with pytest.raises(UnknownFormat, match="as many cells as the header") as refused:
        dialect_of(names, *(row.format(at) for at in range(20)))
    assert refused.value.value == f"3 cells in most rows, {names.count(',') + 1} names in the header"


def test_the_width_is_that_of_most_rows():
    assert dialect_of("a;b;c", "1;2;3", "4;5", "6;7;8").width == 3


def test_a_text_whose_lines_share_no_delimiter_is_one_column():
    found = dialect_of("hello", "a, b, c", "d; e", "f")
    assert (found.width, found.header) == (1, None)
    assert any("each line is read as one column" in one for one in found.unsure)
