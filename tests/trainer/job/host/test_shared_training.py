"""Hosts that share each batch train the model of one host: up to the last digits of float sums, and bit for bit where sums are exact."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from tests.trainer.news_clicks import news_clicks
from tests.trainer.synthetic import Synthetic, config
from tests.trainer.thread_channels import on_channels
from trainer.job.host.attempt import Attempt, AttemptTools, TrainedState
from trainer.job.host.job_data import JobData
from trainer.job.host.sharded_weights import ShardedWeights
from trainer.job.host.unit_gate import UnitGate
from trainer.run.preparation.job_plan import JobPlan, plan_job
from trainer.run.preparation.preparation import prepare_run
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import LOCAL, LocalFetcher
from trainer.run.reading.unit_reader import UnitReader, read_by_solution
from trainer.run.weights.run_state import RunProgress, build_weights
from trainer.scheduling.orders import BEGINNING, StartEpoch
from trainer.tables.statistics.batch_sampler import BatchSampler
from transforms.types import Dense, DType
from warehouse.reading.reader import read_labels

pytest.importorskip("tensorflow")

HOSTS = (1, 2, 4)


def trained(solution, labels, read, options, hosts):
    """The scores of each epoch, and all rows of tables and dense weights, of a job of hosts in threads; and the fragments that were read."""
    prepared = prepare_run(solution, options, labels, on_skip=pytest.fail)
    made = plan_job(prepared, unit_rows=1 << 16, hosts=hosts)
    plan = JobPlan.from_bytes(made.to_bytes(), "plan")
    names = tuple(f"h{rank}" for rank in range(hosts))
    order = StartEpoch(1, 0, plan.units.first_unit, plan.stop_unit, names, None, BEGINNING, "plan")
    reads: list[str] = []

    def noted(solution, fragment):
        reads.append(fragment.path)
        return read(solution, fragment)

    reader = UnitReader(lambda digest: solution, noted, kept_bytes=1 << 30)

    def work(channels):
        rank, attempt = channels.steps.rank, None
        data = JobData(plan, options.run_dir)  # each host has its own, with the clock of its learning rates
        if hosts == 1:
            weights = build_weights(data.layout, data.config, plan.head)
        else:
            weights = ShardedWeights(data.layout, data.config, plan.head, channels)
        state = TrainedState(RunProgress(segments=plan.segments), plan.head.collector(), data.ledger_before(rank))
        buffer = UnitBuffer((), lambda name: LocalFetcher(reader), lambda *unit: attempt.decode(*unit))
        try:
            buffer.set_readers([LOCAL])
            gate, sampler = UnitGate(1, order.first_unit, order.stop_unit), BatchSampler((), share=0.0, seed=0)
            attempt = Attempt(order, state, AttemptTools(data, weights, buffer, channels.steps, gate, sampler))
            buffer.restart(attempt.requests())
            assert attempt.run() == plan.stop_unit
        finally:
            buffer.close()
        return state, weights.arrays()

    found = on_channels(hosts, work)
    steps = found[0][0].host_steps
    assert {one.steps for one in steps.values()} == {found[0][0].progress.step}, "every host has events in every step"
    return found[0][0].progress, whole([arrays for _, arrays in found]), reads


def whole(parts):
    """The dense arrays of the first host, and the changed rows of each table from all hosts, by row."""
    found = {name: array for name, array in parts[0].items() if name.startswith("dense/")}
    for name in [one for one in parts[0] if "/rows/" in one]:
        kind, _, table = name.split("/", 2)
        rows = np.concatenate([arrays[name] for arrays in parts])
        order = np.argsort(rows)
        found[name] = rows[order]
        for column in ("weights", "slots"):
            found[f"{kind}/{column}/{table}"] = np.concatenate([one[f"{kind}/{column}/{table}"] for one in parts])[
                order
            ]
    return found


@pytest.fixture
def news(shared_data: Path, tmp_path: Path):
    with news_clicks(shared_data, tmp_path, hour_rows=1500, group_rows=500) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("extra", [{}, {"deep": False, "linear_optimizer": "newton", "dense_optimizer": "newton"}])
def test_real_clicks_train_one_model_with_any_number_of_hosts(tmp_path, news, extra):
    warehouse, solution = news
    labels, read = partial(read_labels, warehouse.storage, solution), read_by_solution(warehouse.storage)
    options = {"batch_rows": 64, "linear": True, **extra}
    alone, one, _ = trained(solution, labels, read, config(tmp_path / "1", **options), 1)
    events = [one.scores.events for one in alone.history]
    assert sum(events) == solution.rows > 3000
    assert alone.step == sum(-(-count // 64) for count in events)
    for hosts in (2, 4):
        progress, other, reads = trained(solution, labels, read, config(tmp_path / f"{hosts}", **options), hosts)
        assert progress.step == alone.step
        assert len(reads) == 3, "a fragment is read once, not once a host"
        for before, after in zip(alone.history, progress.history, strict=True):
            assert after.scores.log_loss == pytest.approx(before.scores.log_loss, rel=1e-4)
            assert (after.scores.events, after.scores.calibration) == (before.scores.events, pytest.approx(before.scores.calibration, rel=1e-4))  # fmt: skip
        assert one.keys() == other.keys()
        for name, array in one.items():
            if "/rows/" in name:
                assert array.tolist() == other[name].tolist()
            elif "/weights/" in name or name.startswith("dense/trainable"):
                np.testing.assert_allclose(other[name], array, rtol=1e-2, atol=2e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule", [None, {"warmup_steps": 3, "decay": "polynomial", "decay_steps": 9, "power": 2.0}], ids=["", "schedule"]
)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_sums_of_one_term_have_the_same_bits_with_any_number_of_hosts(tmp_path, optimizer, schedule):
    """Each id occurs once, so the gradient of a row is that of one event; parts of 32 events are whole vectors of the processor."""
    data = Synthetic(4, 40, types={"user": Dense(DType.INT64, 1000)})
    for k, (path, table) in enumerate(data.tables.items()):
        user = pa.array(100 * k + np.arange(table.num_rows), pa.int64())
        data.tables[path] = table.set_column(0, "user", user)
    options = {"batch_rows": 128, "partitions_per_epoch": 4, "passes": 2, "held_out_share": 0.0,
               "network": "tests.trainer.model.networks:summed", "embedding_optimizer": optimizer,
               "learning_rate_schedule": schedule}  # fmt: skip
    found = []
    for hosts in HOSTS:
        progress, arrays, _ = trained(
            data.solution,
            data.read_labels,
            lambda solution, one: data.tables[one.path].append_column("__row__", pa.array(np.arange(one.rows))),
            config(tmp_path / f"{hosts}", **options),
            hosts,
        )
        assert progress.step == 2 * -(-388 // 128)
        found.append((progress.history, {name: array.tobytes() for name, array in arrays.items()}))
    (history, arrays), *others = found
    for other_history, other in others:
        assert [name for name in {**arrays, **other} if arrays.get(name) != other.get(name)] == []
        assert other_history == history
