"""Statistics of features that training samples: complete, once per epoch, and kept over restarts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config
from trainer.errors import TornCheckpoint
from trainer.run.loop import TrainEvent, train
from trainer.run.progress.run_statistics import STATISTICS, read_statistics

pytest.importorskip("tensorflow")


@pytest.fixture
def data() -> Synthetic:
    return Synthetic(3)


def trained(data: Synthetic, run_dir, stop=None, **options):
    events: list[TrainEvent] = []
    report = train(
        data.solution,
        data.read,
        config(run_dir, **options),
        read_labels=data.read_labels,
        stop=stop,
        progress=events.append,
    )
    return report, events


def test_all_batches_give_the_exact_statistics(tmp_path, data):
    report, _ = trained(data, tmp_path, statistics_share=1.0)
    found = read_statistics(tmp_path)
    assert (found.first_epoch, found.epochs_done) == (0, 3)
    names = {one.name: one.statistics for one in found.features.values()}
    assert sorted(names) == ["user", "words"]
    assert {key[:5] for key in found.features} == {"userf", "words"}
    words = np.concatenate([table["words"].combine_chunks().values.to_numpy() for table in data.tables.values()])
    assert names["words"].events == pytest.approx(report.events, rel=1e-3)  # aged a little
    assert names["words"].ids == pytest.approx(len(words), rel=1e-3)
    rows, counts = np.unique(words, return_counts=True)
    hottest = rows[counts.argmax()]
    assert dict(names["words"].frequencies.head)[hottest] == pytest.approx(counts.max() / len(words), rel=0.01)
    assert names["user"].longest_bag == 1


def test_a_run_that_resumes_adds_to_its_statistics(tmp_path, data):
    trained(data, tmp_path / "one", statistics_share=0.5)
    trained(data, tmp_path / "two", statistics_share=0.5, stop=lambda: True)
    first = read_statistics(tmp_path / "two")
    trained(data, tmp_path / "two", statistics_share=0.5)
    assert first.epochs_done == 1
    assert replace(read_statistics(tmp_path / "two"), run="") == replace(read_statistics(tmp_path / "one"), run="")


def test_an_epoch_counts_once(tmp_path, data):
    trained(data, tmp_path, statistics_share=1.0)
    found = read_statistics(tmp_path)
    assert found.with_epoch(3, found.features) is found
    assert found.with_epoch(4, found.features).features != found.features


def test_no_share_is_no_file(tmp_path, data):
    trained(data, tmp_path, statistics_share=0.0)
    assert read_statistics(tmp_path) is None


def test_a_damaged_file_begins_again(tmp_path, data):
    trained(data, tmp_path, statistics_share=1.0, stop=lambda: True)
    (path,) = tmp_path.rglob(STATISTICS)
    path.write_bytes(b"{")
    with pytest.raises(TornCheckpoint):
        read_statistics(tmp_path)
    _, events = trained(data, tmp_path, statistics_share=1.0)
    assert [event.kind for event in events].count("skipped") == 1
    assert (read_statistics(tmp_path).first_epoch, read_statistics(tmp_path).epochs_done) == (1, 3)
