"""A calibration that is fitted to the held-out events of a run, and applied by all that predicts."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.checkpoints.job_states import publish_as_parts
from tests.trainer.run.test_held_out_runs import Killed, memorable, run
from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.inspection import describe_commit
from trainer.checkpoints.open_run import open_run
from trainer.errors import ConfigError
from trainer.model.calibration import fit
from trainer.model.metrics import sigmoid
from trainer.run.loop import train
from trainer.run.reading.batches import make_batches
from trainer.run.reading.columns import decode
from trainer.run.weights.saved_run import read_newest_run
from trainer.serving.deltas.calibration_arrays import calibration_arrays_of
from trainer.serving.deltas.commit_weights import dense_arrays, newest_commit
from trainer.serving.trained import load_trained

tf = pytest.importorskip("tensorflow")


@pytest.fixture(scope="module", params=["platt", "isotonic"])
def runs(request, tmp_path_factory):
    """The same passes over ids that occur once, whose labels are noise: with a calibration, and without."""
    folder, data = tmp_path_factory.mktemp(request.param), memorable(5, 300)
    plain = run(data, folder / "plain", passes=3, stop_passes_early=False)
    report = run(data, folder / "run", passes=3, stop_passes_early=False, calibration=request.param)
    return request.param, data, folder, plain, report


def logits_of(trained, table):
    layout = trained.weights.layout
    decoded = decode(table, layout, "table", labelled=False)
    return np.concatenate([trained.weights.predict(one) for one in make_batches([decoded], layout, batch_rows=64)])


@pytest.mark.slow
def test_memorised_ids_cost_no_calibration_on_new_events(runs):
    kind, _, folder, plain, report = runs
    fitted = report.held_out.calibrations[""]
    assert (fitted.kind, fitted.events) == (kind, 617)
    newer = memorable(3, 600)
    for path, table in newer.tables.items():  # ids that the model has never seen
        newer.tables[path] = table.set_column(0, "user", pa.array(np.arange(table.num_rows) + 4_000))
    before, after = (load_trained(str(folder / name)).evaluate(newer.solution, newer.read) for name in ("plain", "run"))
    if kind == "platt":  # an isotonic map is steep here, and the model has trained the held-out events since
        assert after.normalized_entropy < before.normalized_entropy - 0.003
        assert abs(after.calibration - 1) < abs(before.calibration - 1)
    assert plain.held_out.calibrations == {}


@pytest.mark.medium
def test_training_does_not_use_it(runs):
    _, _, folder, plain, report = runs
    assert report.history == plain.history
    assert [one.scores for one in report.held_out.scored] == [one.scores for one in plain.held_out.scored]
    one, other = (read_newest(folder / name, on_skip=pytest.fail) for name in ("plain", "run"))
    assert all(one.arrays[name].tobytes() == other.arrays[name].tobytes() for name in other.arrays)


def test_all_that_predicts_applies_the_map_of_the_checkpoint(runs, tmp_path):
    kind, data, folder, _, report = runs
    trained, table = load_trained(str(folder / "run")), data.tables["hour=04/0.parquet"].drop_columns(["__label__"])
    fitted, logits = report.held_out.calibrations[""], logits_of(load_trained(str(folder / "run")), table)
    assert trained.predict(table).tobytes() == sigmoid(fitted.apply(logits)).tobytes()
    document = describe_commit(open_run(str(folder / "run")), trained.epochs).calibrations
    assert document == {"": fitted.to_document()}
    commit = newest_commit(files := open_run(str(folder / "run")))
    exported = dense_arrays(files, commit)["calibration/"]
    assert exported.tobytes() == fitted.table().tobytes()
    saved = read_newest(folder / "run", on_skip=pytest.fail)
    (tmp_path / "parts").mkdir()
    publish_as_parts(saved, tmp_path / "parts", hosts=2)
    assert load_trained(str(tmp_path / "parts")).predict(table).tobytes() == trained.predict(table).tobytes()
    assert set(calibration_arrays_of(newest_commit(open_run(str(folder / "plain"))).document)) == set()
    assert fitted.text().startswith(kind)


def test_it_is_fitted_to_events_that_the_model_has_not_seen(tmp_path):
    """With one pass, too: the newest share is scored before it is trained, in the same order as without."""
    data = Synthetic(5, 300)
    plain = train(data.solution, data.read, config(tmp_path / "plain"))
    seen: list[tuple] = []

    def stop():
        return len(seen) == 1

    given = config(tmp_path / "run", calibration="platt")
    train(
        data.solution,
        data.read,
        given,
        progress=lambda event: event.kind == "held out" and seen.append(event),
        stop=stop,
    )
    part = load_trained(str(tmp_path / "run"))
    assert part.epochs == 4, "all but the held-out partition is trained"
    tables = [data.tables[f"hour=04/{k}.parquet"] for k in range(2)]
    logits = np.concatenate([logits_of(part, table.drop_columns(["__label__"])) for table in tables])
    labels = np.concatenate([table["__label__"].to_numpy() for table in tables])
    found, expected = part.calibrations[""], fit("platt", labels, logits)
    assert (found.events, found.rarer) == (expected.events, expected.rarer)
    assert found.apply(logits) == pytest.approx(expected.apply(logits), abs=1e-6)
    report = train(data.solution, data.read, given)
    assert report.history == plain.history
    assert report.held_out.calibrations[""] == found
    assert report.ledger.exact


@pytest.mark.slow
def test_a_killed_run_has_the_same_map(tmp_path):
    data, options = memorable(3, 200), {"passes": 2, "calibration": "isotonic"}
    straight = run(data, tmp_path / "straight", **options)
    for moment in (3, 15, 30):
        left, folder = itertools.count(moment, -1), tmp_path / f"killed-{moment}"

        def die(event, left=left):
            if next(left) == 0:
                raise Killed

        with pytest.raises(Killed):
            run(data, folder, progress=die, **options)
        run(data, folder, **options)
        assert read_newest_run(folder, on_skip=pytest.fail).progress.held_out == straight.held_out


def test_few_events_of_the_rarer_label_leave_predictions_as_they_are(tmp_path):
    data = memorable(3, 100)
    for path, table in data.tables.items():
        rare = np.arange(table.num_rows) < 20
        data.tables[path] = table.set_column(1, "__label__", pa.array(rare.astype(np.int64)))
    report = run(data, tmp_path, passes=1, calibration="platt")
    fitted = report.held_out.calibrations[""]
    assert (fitted.kind, fitted.events, fitted.rarer) == ("none", 217, 40)
    assert fitted.text() == "none: 40 of 217 held-out events have the rarer label, and 50 are needed"
    trained, table = load_trained(str(tmp_path)), data.tables["hour=00/0.parquet"].drop_columns(["__label__"])
    assert trained.predict(table).tobytes() == sigmoid(logits_of(trained, table)).tobytes()


def test_what_cannot_be_calibrated_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="above 0 with calibration"):
        config(tmp_path, calibration="platt", held_out_share=0.0)
    with pytest.raises(ConfigError, match="one of none, platt, isotonic"):
        config(tmp_path, calibration="beta")
