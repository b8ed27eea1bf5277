"""Results reach the committing process once, in memory or by files."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.fragments.encoded_result import EncodedResult, ResultCounts, decode_line, encode_error
from pipelines.fragments.work import ComponentOutcome, FragmentResult, PhaseSecs
from pipelines.memoize.job_results import JobResults, deliver, local_results
from transforms.errors import DataError, StorageError
from transforms.execution.operator_costs import OperatorWork
from warehouse.files.column_files import NewFile
from warehouse.queue.failures import Failure
from warehouse.storage.storage import Storage

FAILURE = Failure("stalled", "took more than\n60 s \ud800", "length", "length(query)", (3, 7), "c2FtcGxl")
RESULT = FragmentResult(
    "f", "memos/x", (NewFile("memos/x", "0" * 64, 5, 10),), 5, 100,
    (ComponentOutcome("k", "c", None, "s", 5, 10, 0.1, "memos/x"), ComponentOutcome("l", "d", FAILURE)),
    (OperatorWork("length", 1, 5, 0.25),), PhaseSecs(0.5, 0.25, 0.125),
)  # fmt: skip
LINE = EncodedResult.encode(RESULT).line


@pytest.fixture
def job() -> str:
    """A name that no other test's job has."""
    return uuid.uuid4().hex


def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path / "home"))


def test_a_result_is_one_line_with_its_counts_beside_it() -> None:
    encoded = EncodedResult.encode(RESULT)
    assert encoded.counts == ResultCounts(rows=5, raw_bytes_read=100, memos=1, components_failed=1)
    assert b"\n" not in encoded.line
    assert decode_line(encoded.line, "here") == RESULT


@pytest.mark.parametrize("line", [b"", b"{}", b'{"result": null}', b"[1]", LINE[:-1]])
def test_what_is_no_result_is_refused(line: bytes) -> None:
    with pytest.raises(DataError):
        decode_line(line, "here")


def test_a_result_of_this_process_is_handed_over_in_memory(tmp_path: Path, job: str) -> None:
    results = JobResults(storage(tmp_path), job, 2, in_process=True)
    assert local_results(job) is results
    threads = [threading.Thread(target=deliver, args=(storage(tmp_path), job, f"00000{n}", LINE)) for n in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert (results.new(), results.missing) == ([RESULT, RESULT], 0)
    assert results.new() == []
    results.remove()
    assert not (tmp_path / "home").exists()


def test_a_result_of_another_process_is_a_file_until_it_is_removed(tmp_path: Path, job: str) -> None:
    assert local_results(job) is None
    assert deliver(storage(tmp_path), job, "000000", LINE) == f"{job}-000000"
    deliver(storage(tmp_path), "other", "000001", LINE)
    results = JobResults(storage(tmp_path), job, 2)
    path, other = (tmp_path / "home" / "jobs" / f"{name}.json" for name in (f"{job}-000000", "other-000001"))
    assert path.read_bytes() == LINE
    assert (results.new(), results.new(), results.missing) == ([RESULT], [], 1)
    results.remove()
    assert (path.exists(), other.exists()) == (False, True)


def test_a_step_that_is_tried_again_gives_its_result_once(tmp_path: Path, job: str) -> None:
    """Here, in another process, and first the one and then the other."""
    deliver(storage(tmp_path), job, "000000", LINE)
    results = JobResults(storage(tmp_path), job, 2)
    for index in ("000000", "000001", "000001"):
        deliver(storage(tmp_path), job, index, LINE)
    assert len(results.new()) == 2
    deliver(storage(tmp_path), job, "000001", LINE)
    assert results.new() == []


def test_an_error_is_raised_once_no_result_is_new(tmp_path: Path, job: str) -> None:
    results = JobResults(storage(tmp_path), job, 2, in_process=True)
    deliver(storage(tmp_path), job, "000000", encode_error(StorageError("the disk is full", where="memos")))
    deliver(storage(tmp_path), job, "000001", EncodedResult.encode(replace(RESULT, rows=6)).line)
    assert [result.rows for result in results.new()] == [6]
    for _ in range(2):
        with pytest.raises(StorageError, match="the disk is full"):
            results.new()


def test_a_file_that_cannot_be_read_now_is_read_later(
    tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in ("000000", "000001"):
        deliver(storage(tmp_path), job, index, LINE)
    results = JobResults(storage(tmp_path), job, 2)

    def refuse(_: Storage, path: str) -> bytes:
        raise StorageError("not now", where=path)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "read_bytes", refuse)
        with pytest.raises(StorageError, match="not now"):
            results.new()
    assert results.new() == [RESULT, RESULT]


def test_the_bytes_of_a_file_are_a_document_that_says_what_it_is() -> None:
    assert json.loads(LINE).keys() == {"result"}
    assert json.loads(encode_error(StorageError("no"))).keys() == {"error"}
