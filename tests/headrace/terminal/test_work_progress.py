from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.terminal.work_progress import progress_text, work_progress
from pipelines.worker.progress import WorkProgress

SOME = WorkProgress(12, 40, 3, 1200, 2 * 2**20, 8.0)


def test_progress_shows_done_and_remaining_work() -> None:
    assert progress_text(SOME) == "12/40 memos, 3 fragments, 1,200 rows, 2.0 MiB read, about 8.0 s left"
    assert progress_text(replace(SOME, waits_for=2)) == (
        "12/40 memos, 3 fragments, 1,200 rows, 2.0 MiB read; "
        "waiting for 2 memos leased by other workers or delayed after a failure"
    )
    assert progress_text(WorkProgress(0, 40)) == "0/40 memos, 0 fragments, 0 rows, 0 B read"


def test_without_a_terminal_there_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    with work_progress(lambda: now[0]) as tell:
        for now[0] in (1.0, 29.0, 31.0, 40.0, 62.0):
            tell(SOME)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [f"memoizing: {progress_text(SOME)}"] * 2
