from __future__ import annotations

import sys

import pytest

from benchmarks import small_fragments


@pytest.mark.slow
def test_all_layouts_read_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["small_fragments", "--small"])
    assert small_fragments.main() == 0
    assert "read the same values: ok" in capsys.readouterr().out
