"""Runs whose batches are kept in files: the same bits as without, whatever happens to the files."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.run.test_loop import equal_arrays, saved
from tests.trainer.synthetic import Synthetic, config
from trainer.run.loop import train
from transforms.errors import StorageError
from warehouse.files.batch_files.folder import BatchFolder

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.medium


def run(data, folder, home, most_bytes=1 << 30, progress=None, **options):
    files = None if home is None else BatchFolder(home, most_bytes)
    return train(
        data.solution, data.read, config(folder, **options), read_labels=data.read_labels, batch_files=files,
        progress=progress,
    )  # fmt: skip


def files_of(home):
    return sorted((home / "batches").rglob("*"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run of three passes without files, and its data."""
    folder = tmp_path_factory.mktemp("plain")
    return run(Synthetic(3, 200), folder, None, passes=3), saved(folder)


def assert_same_run(report, folder, plain):
    expected, checkpoint = plain
    assert [one.scores for one in report.history] == [one.scores for one in expected.history]
    assert report.ledger == expected.ledger
    assert report.ledger.exact
    assert equal_arrays(saved(folder), checkpoint)
    assert saved(folder).document["ledger"] == checkpoint.document["ledger"]


def test_later_passes_and_other_runs_read_files_and_no_fragments(tmp_path, plain):
    data = Synthetic(3, 200)
    report = run(data, tmp_path / "one", tmp_path / "home", passes=3)
    assert_same_run(report, tmp_path / "one", plain)
    assert sorted(data.reads) == sorted(one.path for part in data.solution.partitions for one in part.fragments)
    assert report.batch_files.written == 3
    assert report.batch_files.read == 9 + 3 - 3  # epochs, and scorings of the held-out share, without those that wrote
    again = Synthetic(3, 200)
    report = run(again, tmp_path / "two", tmp_path / "home", passes=3)
    assert_same_run(report, tmp_path / "two", plain)
    assert again.reads == []
    assert (report.batch_files.written, report.batch_files.read) == (0, 12)


def test_commits_name_the_files_of_their_epochs(tmp_path):
    report = run(Synthetic(3, 100), tmp_path / "run", tmp_path / "home", passes=2)
    named = {one.batch_file for one in report.history}
    assert named == {path.stem for path in files_of(tmp_path / "home") if path.is_file()}
    assert [one["batch_file"] for one in saved(tmp_path / "run").document["history"]] == [
        one.batch_file for one in report.history
    ]
    without = run(Synthetic(3, 100), tmp_path / "without", None, passes=2)
    assert {one.batch_file for one in without.history} == {""}
    assert "batch_file" not in saved(tmp_path / "without").document["history"][0]


@pytest.mark.parametrize(
    "change",
    [
        {"batch_rows": 64},
        {"seed": 3},
        {"count_events": False},
        {"partitions_per_epoch": 2},
        {"staleness": 2},
        {"held_out_share": 0.0},
        {"hashed": {"user": {"capacity": 50}}},
    ],
)
def test_a_run_with_other_options_has_its_own_bits(tmp_path, change):
    home = tmp_path / "home"
    run(Synthetic(3, 100), tmp_path / "first", home, passes=2)
    plain = run(Synthetic(3, 100), tmp_path / "plain", None, passes=2, **change), saved(tmp_path / "plain")
    report = run(Synthetic(3, 100), tmp_path / "run", home, passes=2, **change)
    assert [one.scores for one in report.history] == [one.scores for one in plain[0].history]
    assert equal_arrays(saved(tmp_path / "run"), plain[1])


def changed(data, **fields):
    """The solution with other members in its first fragment."""
    first, *others = data.solution.partitions
    fragment = replace(first.fragments[0], **fields)
    part = replace(first, fragments=(fragment, *first.fragments[1:]))
    return replace(data.solution, partitions=(part, *others))


@pytest.mark.parametrize("column", ["words", "clicked"])
def test_changed_columns_have_no_file(tmp_path, column):
    data = Synthetic(2, 100)
    run(data, tmp_path / "one", tmp_path / "home", held_out_share=0.0)
    digests = {**data.solution.partitions[0].fragments[0].digests, column: "other"}
    data.solution = changed(data, digests=digests)
    data.reads.clear()
    report = run(data, tmp_path / "two", tmp_path / "home", held_out_share=0.0)
    assert data.reads == ["hour=00/0.parquet", "hour=00/1.parquet"]
    assert (report.batch_files.read, report.batch_files.written) == (1, 1)


def test_columns_that_the_model_does_not_read_may_change(tmp_path):
    data = Synthetic(2, 100)
    run(data, tmp_path / "one", tmp_path / "home", held_out_share=0.0)
    digests = {**data.solution.partitions[0].fragments[0].digests, "unused": "other"}
    data.solution = changed(data, digests=digests, path=data.solution.partitions[0].fragments[0].path)
    data.reads.clear()
    run(data, tmp_path / "two", tmp_path / "home", held_out_share=0.0)
    assert data.reads == []


def test_an_interrupted_epoch_leaves_no_file_and_is_trained_once(tmp_path, plain):
    """Epochs that end early go on from fragments, since they train a part of their events; the rest have files."""
    reports, home = [], tmp_path / "home"
    while not reports or not reports[-1].finished:
        asked = iter([False, False, True])
        data = Synthetic(3, 200)
        reports.append(
            train(data.solution, data.read, config(tmp_path / "run", passes=3), read_labels=data.read_labels,
                  batch_files=BatchFolder(home, 1 << 30), ends_early=lambda a=asked: next(a))
        )  # fmt: skip
        assert not [path for path in files_of(home) if path.name.startswith(".")]
    assert len(reports) > 6
    assert_same_run(reports[-1], tmp_path / "run", plain)


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "unreadable"])
def test_damaged_files_are_replaced_and_change_no_bit(tmp_path, plain, harm):
    home, told = tmp_path / "home", []
    run(Synthetic(3, 200), tmp_path / "one", home, passes=3)
    paths = [path for path in files_of(home) if path.is_file()]
    for path in paths:
        content = bytearray(path.read_bytes())
        if harm == "flip":
            content[len(content) // 2] ^= 1  # of a batch in the middle: the ones before it are trained then
        path.write_bytes({"cut": content[:-9], "flip": content, "empty": b""}.get(harm, content))
        if harm == "unreadable":
            path.unlink()
            path.mkdir()
    report = run(
        Synthetic(3, 200), tmp_path / "two", home, passes=3,
        progress=lambda one: told.append(one.message) if one.kind == "batch file" else None,
    )  # fmt: skip
    assert_same_run(report, tmp_path / "two", plain)
    if harm == "unreadable":
        assert all(
            "could not be read" in one or "no more batches" in one or "could not be removed" in one for one in told
        )
        return
    assert sum("a damaged file of batches is removed" in one for one in told) == 3
    data = Synthetic(3, 200)
    run(data, tmp_path / "three", home, passes=3)
    assert data.reads == []


def test_a_full_folder_is_told_once_and_training_goes_on(tmp_path, plain):
    told = []
    report = run(
        Synthetic(3, 200), tmp_path / "run", tmp_path / "home", 5000, passes=3,
        progress=lambda one: told.append(one.message) if one.kind == "batch file" else None,
    )  # fmt: skip
    assert_same_run(report, tmp_path / "run", plain)
    assert len(told) == 1
    assert "no more batches are written" in told[0]
    assert not [path for path in files_of(tmp_path / "home") if path.is_file()]


def test_a_disk_that_fails_at_the_end_is_told_and_training_goes_on(tmp_path, plain, monkeypatch):
    told = []

    sync = os.fsync

    def refuse(descriptor):
        if "/batches/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    report = run(
        Synthetic(3, 200), tmp_path / "run", tmp_path / "home", passes=3,
        progress=lambda one: told.append(one.message) if one.kind == "batch file" else None,
    )  # fmt: skip
    monkeypatch.undo()
    assert_same_run(report, tmp_path / "run", plain)
    assert len(told) == 1
    assert not [path for path in files_of(tmp_path / "home") if path.is_file()]


def test_an_error_of_reading_leaves_no_unfinished_file(tmp_path):
    data = Synthetic(3, 200)

    def read(fragment):
        if fragment.path == "hour=00/1.parquet":
            raise StorageError("no")
        return data.read(fragment)

    with pytest.raises(StorageError, match="no"):
        train(data.solution, read, config(tmp_path / "run"), read_labels=data.read_labels,
              batch_files=BatchFolder(tmp_path / "home", 1 << 30))  # fmt: skip
    assert not [path for path in files_of(tmp_path / "home") if path.is_file()]


def test_labels_that_arrive_later_are_trained_and_have_files_of_their_own(tmp_path):
    """Late labels make their fragment another one; events that were trained before are not trained again."""

    def with_labels(data, missing):
        for path, table in data.tables.items():
            labels = table["__label__"].to_numpy().astype(float)
            gone = np.zeros(len(labels), bool)
            gone[::3] = missing
            import pyarrow as pa

            data.tables[path] = table.set_column(
                table.column_names.index("__label__"), "__label__", pa.array(np.where(gone, np.nan, labels), mask=gone)
            )
        return data

    def both(home):
        early = with_labels(Synthetic(2, 100), True)
        name = "plain" if home is None else "kept"
        run(early, tmp_path / name, home, passes=2)
        late = with_labels(Synthetic(2, 100), False)
        for part in late.solution.partitions:
            for fragment in part.fragments:
                fragment.digests["clicked"] += "late"
        return run(late, tmp_path / name, home, passes=2)

    plain, kept = both(None), both(tmp_path / "home")
    assert kept.ledger == plain.ledger
    assert kept.ledger.exact
    assert equal_arrays(saved(tmp_path / "kept"), saved(tmp_path / "plain"))


def test_files_that_were_not_used_make_space(tmp_path):
    home = tmp_path / "home"
    run(Synthetic(2, 200), tmp_path / "one", home)
    old = [path for path in files_of(home) if path.is_file()]
    size = sum(path.stat().st_size for path in old)
    for path in old:
        os.utime(path, (1, 1))
    report = run(Synthetic(2, 200, first=5), tmp_path / "two", home, size * 3 // 2)
    assert report.batch_files.written == 2
    now = [path for path in files_of(home) if path.is_file()]
    assert len(set(now) & set(old)) < 2
    assert sum(path.stat().st_size for path in now) <= size * 3 // 2


@pytest.mark.slow
def test_batches_of_sequences_have_a_file_of_their_own(tmp_path):
    """They have other ids than those of bags, and lengths; a file of one is no file of the other."""
    for name, reads in (("wrote", 2), ("read", 0), ("bags", 2)):
        data = Synthetic(1, 200)
        sequences = {} if name == "bags" else {"words": {"length": 2, "encoder": "mean"}}
        run(data, tmp_path / name, tmp_path / "home", sequences=sequences)
        assert len(data.reads) == reads
    assert equal_arrays(saved(tmp_path / "wrote"), saved(tmp_path / "read"))
