"""Completion in a shell: commands, options, and the names of a home."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.options.completions import _offered, catalog_file
from tests.conftest import ROOT
from warehouse.catalog.stored_names import stored_names
from warehouse.config import WarehouseConfig
from warehouse.warehouse import Warehouse

MODEL = """
import headrace as hr

model = hr.Model({name!r}, client="search", label="clicked", table="log")
model.input("query", hr.text("query").lower().unigrams().hash_buckets(1_000))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace.cli.main import run

    folder = tmp_path_factory.mktemp("completion")
    day = folder / "log" / "date=2026-01-01"
    day.mkdir(parents=True)
    pq.write_table(pa.table({"query": ["red shoes", "blue"], "clicked": [1.0, 0.0]}), day / "a.parquet")
    assert run(["table", "add", "log", str(folder / "log"), "--home", str(folder / "home")]) == 0
    for name in ("search", "search_next", "shopping"):
        (folder / "model.py").write_text(MODEL.format(name=name), encoding="utf-8")
        assert run(["model", "submit", str(folder / "model.py"), "--home", str(folder / "home")]) == 0
    (folder / "home" / "runs" / "search-v1").mkdir(parents=True)
    (folder / "home" / "runs" / "search-v2").mkdir()
    return folder / "home"


def answers(line: str, home: Path | str, program: str = "") -> list[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    asked = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    environment = {**os.environ, "HEADRACE_HOME": str(home), **asked}
    environment.pop("HEADRACE_CATALOG_URL", None)
    command = ["-c", program] if program else ["-m", "headrace"]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("headrace ta", ["table", "tasks"]),
        ("headrace checks ", ["run", "show"]),
        ("headrace model show s", ["search", "search_next", "shopping"]),
        ("headrace train search_", ["search_next"]),
        ("headrace table show ", ["log"]),
        ("headrace tasks list --model sh", ["shopping"]),
        ("headrace runs show ", ["search"]),
        ("headrace status --wa", ["--watch"]),
    ],
)
def test_bash_offers(line: str, expected: list[str], home: Path) -> None:
    assert answers(line, home) == expected


@pytest.mark.medium
def test_components_are_offered_by_their_first_digits(home: Path) -> None:
    (found,) = answers("headrace graphs show ", home)
    assert len(found) == 64
    assert answers(f"headrace graphs show {found[:3]}", home) == [found]
    assert answers("headrace graphs show z", home) == []


@pytest.mark.medium
@pytest.mark.parametrize("name", ["absent", "damaged", "settings"])
def test_what_fails_offers_nothing(name: str, tmp_path: Path) -> None:
    place = tmp_path / name
    if name != "absent":
        place.mkdir()
        (place / ("catalog.db" if name == "damaged" else "headrace.toml")).write_bytes(b"\x00no catalog" * 100)
    assert answers("headrace model show ", place) == []
    assert not (tmp_path / "absent").exists()


@pytest.mark.medium
def test_completion_loads_no_database_toolkit(home: Path) -> None:
    heavy = {"sqlalchemy", "pydantic", "numpy", "pyarrow", "numba", "rich"}
    program = (
        "import atexit, json, sys; from headrace.cli.main import main\n"
        f"atexit.register(lambda: print('!' + json.dumps(sorted(sys.modules.keys() & {heavy!r}))))\n"
        "main([])"
    )
    *found, loaded = answers("headrace model show s", home, program)
    assert found == ["search", "search_next", "shopping"]
    assert json.loads(loaded[1:]) == []


def test_names_with_characters_of_shells_are_not_offered() -> None:
    assert _offered(["a", "a b", "$(rm)", "`x`", "-o", "a;b", "a\nb", "é", 'a"', "a/b-c_d.e@2"]) == ["a", "a/b-c_d.e@2"]


@given(st.lists(st.text(min_size=1, max_size=6), max_size=8, unique=True), st.text(max_size=3))
def test_names_are_those_with_the_prefix(names: list[str], prefix: str) -> None:
    kept = [name for name in names if "\x00" not in name and name.isprintable()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "catalog.db"
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("CREATE TABLE tables (name TEXT PRIMARY KEY, dropped_at FLOAT)")
            connection.executemany("INSERT INTO tables VALUES (?, NULL)", [(name,) for name in kept])
        expected = sorted(name for name in kept if name.startswith(prefix))
        if prefix.isprintable():
            assert sorted(stored_names(file, "table", prefix, 100)) == expected


def test_names_are_read_from_the_schema_of_the_catalog(home: Path) -> None:
    with Warehouse.open(WarehouseConfig(str(home))):
        assert stored_names(home / "catalog.db", "model", "search_", 10) == ["search_next"]
        assert stored_names(home / "catalog.db", "table", "", 10) == ["log"]
        assert stored_names(home / "catalog.db", "model", "", 1) == ["search"]


@pytest.mark.parametrize(
    ("settings", "url", "expected"),
    [
        (None, "", "home/catalog.db"),
        ("lease_secs = 1.0", "", "home/catalog.db"),
        ('catalog_url = "sqlite:////var/c.db"', "", "/var/c.db"),
        ('catalog_url = "sqlite:////var/c.db"', "sqlite:////other.db", "/other.db"),
        (None, "postgresql://db/catalog", None),
        ('catalog_url = "postgresql://db/catalog"', "", None),
        ("catalog_url = ", "", None),
    ],
)
def test_the_file_of_a_catalog(settings: str | None, url: str, expected: str | None, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if settings is not None:
        (home / "headrace.toml").write_text(settings, encoding="utf-8")
    found = catalog_file(home, url)
    assert found == (None if expected is None else tmp_path / expected)


@pytest.mark.medium
def test_bash_runs_the_script(home: Path, tmp_path: Path) -> None:
    """The script of bash, in a real bash."""
    asked = {**os.environ, "_HEADRACE_COMPLETE": "source_bash"}
    script = subprocess.run(
        [sys.executable, "-m", "headrace"], cwd=ROOT, env=asked, capture_output=True, text=True, check=True
    ).stdout
    place = tmp_path / "headrace"
    place.write_text(f'#!/bin/bash\nexec {sys.executable} -m headrace "$@"\n', encoding="utf-8")
    place.chmod(0o755)
    program = (
        f"{script}\nCOMP_WORDS=(headrace model show sho); COMP_CWORD=3\n"
        f'_headrace_completion {place}; echo "${{COMPREPLY[@]}}"\n'
    )
    environment = {**os.environ, "HEADRACE_HOME": str(home), "PYTHONPATH": str(ROOT)}
    environment.pop("HEADRACE_CATALOG_URL", None)
    done = subprocess.run(["bash", "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "shopping", done.stderr


def test_a_shell_that_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headrace.cli.main import run

    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "tcsh")
    for option in ("--show-completion", "--install-completion"):
        assert run([option]) == 2
        assert "the shell must be one that has completion" in capsys.readouterr().err
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "fish")
    assert run(["--show-completion"]) == 0
    assert "complete --command headrace" in capsys.readouterr().out
