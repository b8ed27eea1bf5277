"""The files of a run in a local folder, while another process writes there."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.checkpoints.local_run import LocalRun


def test_what_is_gone_since_it_was_listed_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the folder of a link that its writer renames: a server that follows a chain must not end by it."""
    (tmp_path / "chain").mkdir()
    (tmp_path / "chain" / "kept").write_bytes(b"four")
    (tmp_path / "chain" / "folder").mkdir()
    listed = Path.glob

    def glob(self: Path, pattern: str) -> list[Path]:
        return [*listed(self, pattern), self / ".tmp-link"]

    monkeypatch.setattr(Path, "glob", glob)
    found = LocalRun(tmp_path).entries("chain")
    assert found.folders == ("folder",)
    assert found.sizes == {"kept": 4}
    assert LocalRun(tmp_path).sizes("absent") == {}
