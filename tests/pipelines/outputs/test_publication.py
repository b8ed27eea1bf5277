"""Publishing an import moves and removes its own staged files only, and follows no link."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.outputs.publication import ImportLedger
from transforms.errors import DataError

IMPORT = "0123456789abcdef"


@pytest.fixture
def ledger(tmp_path: Path) -> ImportLedger:
    (tmp_path / "clicks").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/diary").write_text("mine")
    return ImportLedger(str(tmp_path / "clicks"))


def journal(ledger: ImportLedger, staged: Path, place: str, name: str = IMPORT) -> None:
    ledger.folder.mkdir(exist_ok=True)
    document = json.dumps({"files": [[str(staged), place]]})
    (ledger.folder / f"{name}.pending.json").write_text(document)


def test_a_journal_that_names_other_files_moves_nothing(ledger: ImportLedger, tmp_path: Path) -> None:
    mine, staging = tmp_path / "mine/diary", ledger.folder / "staging" / IMPORT
    for staged, place in (
        (mine, "a.parquet"),
        (staging / "../../../mine/diary", "a.parquet"),
        (staging / "linked/diary", "a.parquet"),
        (staging / "own", "../a.parquet"),
        (staging / "own", str(tmp_path / "a.parquet")),
    ):
        staging.mkdir(parents=True, exist_ok=True)
        (staging / "own").write_text("staged")
        if not (staging / "linked").exists():
            (staging / "linked").symlink_to(mine.parent)
        journal(ledger, staged, place)
        with pytest.raises(
            DataError, match=r"a journal must move staged files|must be a relative path that stays inside"
        ):
            ledger.recover()
        assert mine.read_text() == "mine"
        assert list(tmp_path.rglob("a.parquet")) == []


@pytest.mark.parametrize("name", [".", "..", "mine"])
def test_a_journal_of_another_name_removes_nothing(ledger: ImportLedger, tmp_path: Path, name: str) -> None:
    kept = ledger.folder / "staging/fedcba9876543210/x"
    kept.parent.mkdir(parents=True)
    kept.write_text("staged")
    journal(ledger, kept, "a.parquet", name)
    with pytest.raises(DataError, match="16 hexadecimal digits"):
        ledger.recover()
    assert kept.exists()


def test_staging_that_is_a_link_is_not_emptied(ledger: ImportLedger, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / IMPORT
    mine.mkdir()
    (mine / "diary").write_text("mine")
    ledger.folder.mkdir()
    (ledger.folder / "staging").symlink_to(tmp_path / "mine")
    ledger.discard(IMPORT)
    assert (mine / "diary").read_text() == "mine"


def test_an_import_is_carried_out(ledger: ImportLedger) -> None:
    staged = ledger.stage(IMPORT) / "own"
    staged.write_text("staged")
    journal(ledger, staged, "date=2026-01-01/a.parquet")
    assert ledger.recover() == 1
    assert (ledger.output / "date=2026-01-01/a.parquet").read_text() == "staged"
    assert not staged.parent.exists()
