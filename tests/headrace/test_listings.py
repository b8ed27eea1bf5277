"""``--output`` and ``--watch`` of the commands that list or show a state."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.reference.commands import commands
from headrace.reference.emitted import screens_of
from headrace.screens.listing import Listing
from tests.conftest import ROOT
from tests.support.processes import PATIENCE_SECS

WITH_CSV = {words: command for words, command in commands() if any("-o" in one.opts for one in command.params)}
SCHEMAS = json.loads((ROOT / "docs" / "json-schemas.json").read_text(encoding="utf-8"))
WATCHED = {words: command for words, command in commands() if any("--watch" in one.opts for one in command.params)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    assert run(["init"]) == 0
    capsys.readouterr()
    return tmp_path / "home"


def test_commands_have_the_options() -> None:
    assert len(WITH_CSV) >= 15
    assert {
        "headrace status",
        "headrace tasks list",
        "headrace runs ls",
        "headrace jobs ls",
        "headrace queue",
    } <= WATCHED.keys()


@pytest.mark.parametrize("words", WITH_CSV)
def test_columns_are_the_fields_of_a_row_in_json(words: str) -> None:
    """The schemas are those of the manual, which another test compares with the code."""
    schema = SCHEMAS[words]
    for kind in screens_of(WITH_CSV[words]).values():
        assert issubclass(kind, Listing), f"{words} prints one table"
        of_screens = [one["properties"] for one in schema.get("anyOf", [schema])]
        (rows,) = [one[kind.rows_field] for one in of_screens if kind.rows_field in one]
        assert list(kind.columns) == list(rows["items"]["properties"])


def test_a_listing_without_rows_has_its_header(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("table ls", "model ls", "graphs ls", "tasks list", "tasks list --each", "pins", "clients list", "runs ls", "jobs ls", "holds ls"):  # fmt: skip
        assert run([*words.split(), "-o", "csv"]) == 0
        out = capsys.readouterr().out
        assert out.count("\r\n") == 1, words
        assert out.strip(), words


def test_rows_are_those_of_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--output", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)["settings"]
    assert run(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == expected
    assert run(["config", "show", "--output", "CSV"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    assert [row["name"] for row in found] == [row["name"] for row in expected]
    assert [row["value"] for row in found] == [
        one["value"] if isinstance(one["value"], str) else json.dumps(one["value"]) for one in expected
    ]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ("table ls -o xml", "--output must be a known form"),
        ("table ls --json -o csv", "--json must be without another --output"),
        ("runs ls -o csv --watch 1", "--watch must be without --output csv: a CSV file has one header"),
        ("status --watch 0", "--watch must be 0.1 to 86400 seconds"),
        ("status --watch nan", "--watch must be 0.1 to 86400 seconds"),
    ],
)
def test_options_that_contradict_each_other(
    words: str, rule: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    captured = capsys.readouterr()
    assert rule in " ".join(captured.err.split())
    assert captured.out == ""


def started(words: str, output: int) -> subprocess.Popen[bytes]:
    """A command with a terminal or a pipe as output, which Ctrl-C interrupts although the tests may ignore it."""
    program = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from headrace.cli.main import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", program, *words.split()], cwd=ROOT, stdout=output, stderr=subprocess.PIPE
    )


def read_until(descriptor: int, word: bytes, times: int) -> bytes:
    found = b""
    while found.count(word) < times:
        part = os.read(descriptor, 65536)
        assert part, found
        found += part
    return found


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("words", "word"), [("status --watch 0.1", b"every 0.1 s"), ("status --watch 0.1 --json", b"}\n")]
)
def test_a_pipe_gets_one_after_the_other_until_ctrl_c(
    words: str, word: bytes, home: Path, pipe: tuple[int, int]
) -> None:
    process = started(words, pipe[1])
    os.close(pipe[1])
    found = read_until(pipe[0], word, 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECS) == 0, process.stderr
    assert b"\x1b" not in found
    if "--json" in words:
        documents_ = [json.loads(line) for line in found.decode().splitlines()[:3]]
        assert documents_[0] == documents_[2]
        assert documents_[0]["tables"] == 0


@pytest.mark.medium
def test_a_terminal_is_drawn_in_place(home: Path) -> None:
    master, slave = pty.openpty()
    process = started("status --watch 0.1", slave)
    os.close(slave)
    found = read_until(master, b"every 0.1 s", 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECS) == 0
    os.close(master)
    assert found.startswith(b"\x1b[2J\x1b[H")
    assert found.count(b"\x1b[2J") == 1
    assert found.count(b"\x1b[H") >= 3
