"""Screens of long tables and of empty ones."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headrace.screens.changes import ChangeScreen
from headrace.screens.tables import ColumnRow, ImportedScreen, PartitionRow, RegisteredScreen, TableScreen
from headrace.terminal import progress
from transforms.errors import listed
from warehouse.changes.outcome import Change, Recompute


def text_of(screen, width=120):
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(screen.render())
    return captured.get()


def table_screen(partitions):
    rows = tuple(PartitionRow(f"hour={n:05d}", 1, 1, 7, 100, 0, ()) for n in range(partitions))
    return TableScreen("log", 1, "/logs", "time", (ColumnRow("time", "timestamp", False),), rows)


def test_a_table_of_few_partitions_shows_all():
    assert text_of(table_screen(24)).count("hour=") == 24


def test_a_table_of_thousands_shows_the_first_and_the_last():
    text = text_of(table_screen(3440))
    shown = [line.split()[0] for line in text.split("\n") if line.startswith("hour=")]
    assert shown == [f"hour={n:05d}" for n in (*range(12), *range(3428, 3440))]
    assert "3,416 partitions in the middle not shown: --json lists all" in text


def test_an_import_of_known_rows_says_so():
    registered = RegisteredScreen("log", 3, (), (), (), 5, 70, 700)
    text = text_of(ImportedScreen("/tables/log", 0, 0, 0, 0, "/rejects/log", registered))
    assert text.startswith("nothing new: every row of these files was imported before\ntable log, version 3")


def test_a_change_names_inputs_as_their_models_do():
    rows = (
        Recompute("f" * 64, "hash_buckets(user, buckets=9)", ("user", "who"), ("user",), ("a", "b"), 2, 14),
        Recompute("e" * 64, "lower(query)", (), ("query",), ("a",), 1, 7),
    )
    change = Change("log", "append", 2, True, False, 7, 1, ("hour=1",), (), (), 0, (), rows)
    text = text_of(ChangeScreen(change), width=140)
    assert "user, who" in text
    assert "hash_buckets(user" not in text
    assert "part of inputs: lower(query)" in text


@pytest.mark.parametrize("reported", [None, (0, 0)])
def test_a_bar_without_work_leaves_nothing(monkeypatch, reported):
    out = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=out, force_terminal=True, width=80))
    with progress.progress_bar("importing log", "files") as report:
        if reported:
            report(*reported)
    left = out.getvalue().rpartition("\x1b[2K")[2]
    assert "0/?" not in out.getvalue()
    assert "importing" not in left


def test_a_bar_with_work_ends_with_its_count(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=out, force_terminal=True, width=80))
    with progress.progress_bar("importing log", "files") as report:
        report(3, 3)
    assert "3/3" in out.getvalue()


def test_a_long_list_in_an_error_is_cut_and_counted():
    assert listed(["a", "b"]) == "a; b"
    assert listed([f"partition {n}" for n in range(46)], 3) == "partition 0; partition 1; partition 2; and 43 more"
