"""Learning rates by a schedule: each update has the rate of its step, wherever tables are and however often a run is resumed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.synthetic import Synthetic, config, on_servers
from trainer.checkpoints.checkpoint import read_newest
from trainer.errors import ConfigError
from trainer.model.inputs import lay_out
from trainer.options.rate_schedule import RateSchedule
from trainer.options.slice_tables import check_slice_rates
from trainer.run.loop import train
from trainer.run.progress.identity import identity_of
from trainer.run.weights.run_state import Weights

pytest.importorskip("tensorflow")

SCHEDULE = {"warmup_steps": 5, "decay": "cosine", "decay_steps": 12, "end_share": 0.1}
BOTH = {"linear": True, "learning_rate_schedule": SCHEDULE}


def run(folder, stop=lambda: False, servers=0, **options):
    data = Synthetic(4)
    with on_servers(servers, str(folder)) as make_engine:
        found = train(data.solution, data.read, config(folder, partitions_per_epoch=1, **options), stop=stop,
                      make_engine=make_engine)  # fmt: skip
    newest = read_newest(folder, on_skip=pytest.fail)
    assert newest is not None
    return found, newest.arrays


def assert_equal_arrays(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def test_a_warm_up_of_one_step_changes_nothing(tmp_path):
    _, plain = run(tmp_path / "plain", linear=True)
    _, whole = run(tmp_path / "whole", linear=True, learning_rate_schedule={"warmup_steps": 1})
    _, warm = run(tmp_path / "warm", linear=True, learning_rate_schedule={"warmup_steps": 9})
    assert_equal_arrays(plain, whole)
    assert any(array.tobytes() != warm[name].tobytes() for name, array in plain.items() if "/weights/" in name)


@pytest.mark.parametrize("staleness", [0, 2])
def test_each_update_has_the_rate_of_its_step(tmp_path, monkeypatch, staleness):
    """Those of tables come up to some steps later than those of the dense part; a resumed run goes on with its step."""
    rates = {"deep": [], "linear": [], "dense": []}
    update, apply_ = Weights._update_rows, Weights.differentiate

    def note_rows(weights, *arguments):
        rates["deep"].append(weights.engine.tables[0].optimizer.learning_rate() / 0.05)
        rates["linear"].append(weights.linear.tables[0].optimizer.learning_rate() / 0.1)
        update(weights, *arguments)

    def note_dense(weights, *arguments):
        found = apply_(weights, *arguments)
        rates["dense"].append(weights.dense.learning_rate / 0.003)
        return found

    monkeypatch.setattr(Weights, "_update_rows", note_rows)
    monkeypatch.setattr(Weights, "differentiate", note_dense)
    schedule, ends = RateSchedule.read(SCHEDULE), iter([False, True, True])
    reports = [
        run(tmp_path, stop, staleness=staleness, **BOTH)[0]
        for stop in (lambda: next(ends), lambda: True, lambda: False)
    ]
    assert [bool(one.resumed_from) for one in reports] == [False, True, True]
    steps = len(rates["dense"])
    assert steps > 5 + 12
    expected = [schedule.share(step) for step in range(steps)]
    for kind in rates:
        np.testing.assert_allclose(rates[kind], expected, rtol=1e-6, err_msg=kind)


@pytest.mark.medium
@pytest.mark.parametrize(
    "options", [{}, {"staleness": 2}, {"hashed": {"user": {"capacity": 4000}}}, {"hot_rows": {"user": 20}}]
)
def test_a_schedule_has_the_same_bits_on_servers_and_after_any_end(tmp_path, options):
    _, alone = run(tmp_path / "alone", **BOTH, **{name: value for name, value in options.items() if name != "hot_rows"})
    _, served = run(tmp_path / "served", servers=1, **BOTH, **options)
    assert_equal_arrays(alone, served)
    for number in range(4):
        run(tmp_path / "cut", lambda: True, servers=number % 2, **BOTH, **({} if "hot_rows" in options else options))
    _, cut = run(tmp_path / "cut", **BOTH, **({} if "hot_rows" in options else options))
    assert_equal_arrays(alone, cut)


def test_pruned_tables_follow_a_schedule(tmp_path):
    pruning = {"pruning": {"budget": 0.5, "round_steps": 5}}
    _, plain = run(tmp_path / "plain", **pruning)
    _, scheduled = run(tmp_path / "scheduled", **pruning, learning_rate_schedule=SCHEDULE)
    name = next(one for one in plain if one.startswith("embedding/weights/"))
    assert plain[name].tobytes() != scheduled[name].tobytes()


def test_a_run_goes_on_with_another_schedule(tmp_path):
    run(tmp_path, lambda: True, **BOTH)
    report, _ = run(tmp_path, linear=True, learning_rate_schedule={"warmup_steps": 3})
    assert report.resumed_from
    assert report.finished


@pytest.mark.parametrize("kind", ["lamb", "lars"])
def test_a_run_with_an_optimizer_for_large_batches_is_resumed_with_the_same_bits(tmp_path, kind):
    report, whole = run(tmp_path / "whole", dense_optimizer=kind, **BOTH)
    run(tmp_path / "cut", lambda: True, dense_optimizer=kind, **BOTH)
    _, cut = run(tmp_path / "cut", dense_optimizer=kind, **BOTH)
    assert_equal_arrays(whole, cut)
    assert report.history[-1].scores.log_loss < 0.75


def test_a_slice_has_one_rate():
    with pytest.raises(ConfigError, match="learning_rate_schedule must be left out with --tpu"):
        check_slice_rates(config("run", engine="tpu", learning_rate_schedule=SCHEDULE))
    check_slice_rates(config("run", engine="tpu"))


def test_equal_options_make_equal_tables():
    data, options = Synthetic(1), config("run", **BOTH)
    one, other = (lay_out(identity_of(data.solution, options).typed_inputs, options) for _ in range(2))
    assert one == other
    assert hash(one.features[0].table.optimizer) == hash(other.features[0].table.optimizer)
    one.clock.begin(1)
    assert one.features[0].table.optimizer.learning_rate() == pytest.approx(0.05 * 2 / 5)
    assert other.features[0].table.optimizer.learning_rate() == 0.05
