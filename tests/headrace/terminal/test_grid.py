"""Tables and errors at any width of a terminal."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headrace.terminal.grid import facts, grid
from headrace.terminal.output import error_text
from headrace.terminal.wrapping import wrapped

ROWS = (
    ("a8026ff19071", "577,075", "hash_buckets(unigrams(lower(ad_title)), buckets=50000)"),
    ("2670ed244be9", "12", "hash_buckets(concat(intersect(unigrams(lower(ad_title)), unigrams(lower(query)))), n=9)"),
)
COLUMNS = ("fingerprint", "rows in all>", "expression*")


def lines_of(renderable, width):
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get().rstrip("\n").split("\n")


def test_a_wide_terminal_has_a_line_a_row():
    lines = lines_of(grid(COLUMNS, ROWS), 200)
    assert len(lines) == 4
    assert lines[2] == "a8026ff19071       577,075   hash_buckets(unigrams(lower(ad_title)), buckets=50000)"


def test_prose_wraps_in_its_column_and_breaks_no_name():
    lines = lines_of(grid(COLUMNS, ROWS), 80)
    assert "a8026ff19071       577,075   hash_buckets(unigrams(lower(ad_title))," in lines
    names = set(re.findall(r"\w+", " ".join(ROWS[1])))
    assert names <= set(re.findall(r"\w+", "\n".join(lines)))


def test_names_of_columns_wrap_before_prose_leaves_its_row():
    head = lines_of(grid(COLUMNS, ROWS), 60)[:2]
    assert head == ["              rows in", "fingerprint       all  expression"]


def test_a_narrow_terminal_has_prose_beneath_its_row():
    lines = lines_of(grid(COLUMNS, ROWS), 40)
    assert lines[2:4] == ["a8026ff19071       577,075", "    expression: hash_buckets(unigrams("]
    assert lines[4] == "    lower(ad_title)), buckets=50000)"


def test_what_fits_in_no_way_is_a_block_a_row():
    lines = lines_of(grid(("fingerprint", "again"), (("a8026ff19071", "b" * 30),)), 40)
    assert lines[:3] == ["fingerprint  a8026ff19071", f"again        {'b' * 27}", f"             {'b' * 3}"]


def test_a_long_fact_is_wrapped():
    assert lines_of(facts((("at", "one two three four five six"),)), 24) == ["at  one two three four", "    five six"]


def test_a_long_error_is_wrapped_on_a_terminal_only():
    text = "error: no\n  value:   one two three four\n  next:    x"
    assert error_text(text, 0) == text
    assert error_text(text, 24).split("\n") == [
        "error: no",
        "  value:   one two three",
        "           four",
        "  next:    x",
    ]


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc", "Mn", "Me", "Cf"]), max_size=200), st.integers(2, 60))
def test_wrapping_loses_nothing_but_spaces_and_keeps_to_its_width(text, width):
    lines = wrapped(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width for line in lines)


@given(st.integers(40, 200))
def test_no_line_is_wider_than_the_terminal(width):
    rows = tuple((row[0], row[1], row[2], "/a/rather/long/path/" * 6) for row in ROWS)
    for line in lines_of(grid((*COLUMNS, "folder*"), rows, title="t"), width):
        assert cell_len(line) <= width
        assert line == line.rstrip()
