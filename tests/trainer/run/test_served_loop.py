"""Training with tables on parameter servers in threads; bits are compared by the slow tests, in processes of their own."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.checkpoints.checkpoint import read_newest, write_checkpoint
from trainer.errors import ConfigError, ServerLost
from trainer.run import loop
from trainer.run.loop import train
from trainer.run.server_losses import train_through_losses
from trainer.servers.run_servers import RunServers


def on_servers(servers, run: int):
    found = RunServers(tuple(one.address for one in servers), run=run)
    return partial(found.engine, 1)


def losses_of(report) -> list[float]:
    return [one.scores.log_loss for one in report.history]


@pytest.mark.medium
def test_each_run_on_the_same_servers_trains_as_one_without_servers(tmp_path):
    data = Synthetic(2)
    alone = losses_of(train(data.solution, data.read, config(tmp_path / "alone")))
    with thread_servers(2) as servers:
        for run in (1, 2):
            report = train(data.solution, data.read, config(tmp_path / str(run)), make_engine=on_servers(servers, run))
            assert losses_of(report) == pytest.approx(alone, rel=1e-6), "each begins with initial rows"


@pytest.mark.slow
def test_held_out_events_are_scored_after_the_snapshot_that_is_written(tmp_path, monkeypatch):
    """The tables have one snapshot at a time: a second one would be written as a part of the first."""

    def write(*arguments, **options):
        time.sleep(0.3)
        return write_checkpoint(*arguments, **options)

    data = Synthetic(3)
    options = {"passes": 2, "held_out_share": 0.3, "partitions_per_epoch": 1, "hashed": {"user": {"capacity": 300}}}
    reports = []
    for name in ("at once", "slowly"):
        with thread_servers(2) as servers:
            engine = on_servers(servers, 1)
            reports.append(train(data.solution, data.read, config(tmp_path / name, **options), make_engine=engine))
        monkeypatch.setattr(loop, "write_checkpoint", write)
    alone, served = reports
    assert losses_of(served) == losses_of(alone)
    assert len(served.held_out.scored) == 2
    assert served.held_out == alone.held_out


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3])
def test_a_report_after_a_loss_has_each_event_once(tmp_path, after):
    """Of what was trained before it, what a checkpoint has; hot rows of both attempts. ``after``: batches of the lost epoch."""
    data, seen, losses = Synthetic(3), [], []
    options = {"partitions_per_epoch": 1, "batch_rows": 16, "hot_rows": {"words": 20, "user": 7}}

    def lose(event) -> None:
        if event.kind == "batch" and event.epoch == 2 and not losses:
            seen.append(event)
            if len(seen) == after:
                raise ServerLost("lost")

    class Staying:
        def must_end_early(self) -> bool:
            return False

        def settle(self) -> None:
            pass

    with thread_servers(2) as servers:
        plain = train(
            data.solution, data.read, config(tmp_path / "plain", **options), make_engine=on_servers(servers, 1)
        )

        def attempt(number: int):
            engine = partial(RunServers(tuple(one.address for one in servers), run=2).engine, number)
            return train(
                data.solution, data.read, config(tmp_path / "lost", **options), make_engine=engine, progress=lose
            )

        found = train_through_losses(attempt, lambda: "", lambda error, newest: losses.append(error), Staying())
    assert len(losses) == 1
    assert losses[0].report.events < plain.events
    assert losses[0].report.hot.lookups > 0
    assert losses[0].report.checkpoint.endswith("epoch-000002")
    assert (found.events, found.epochs, found.resumed_from) == (plain.events, plain.epochs, "")
    assert found.hot.lookups > plain.hot.lookups
    assert losses_of(found) == losses_of(plain)


def test_a_model_without_ids_is_refused(tmp_path):
    data = Synthetic(1, types={name: TYPES[name] for name in ("price", "mobile")})
    with thread_servers(1) as servers, pytest.raises(ConfigError, match="servers needs a model with embedding tables"):
        train(data.solution, data.read, config(tmp_path), make_engine=on_servers(servers, 1))


def test_a_run_goes_on_with_another_rate_on_servers_that_have_its_tables(tmp_path):
    """Servers that have opened the tables of its first rate take the new one: no row changes at a rate of nothing."""
    data, begins = Synthetic(3, 200), {"linear": True, "embedding_learning_rate": 0.1}
    nothing = {"linear": True, "embedding_learning_rate": 1e-30, "linear_learning_rate": 1e-30}
    with thread_servers(2) as servers:
        make_engine = on_servers(servers, 1)
        stopped = train(
            data.solution, data.read, config(tmp_path, **begins), make_engine=make_engine, stop=lambda: True
        )
        assert not stopped.finished
        first = read_newest(tmp_path, on_skip=pytest.fail).arrays
        report = train(data.solution, data.read, config(tmp_path, **nothing), make_engine=make_engine)
    assert (report.finished, report.ledger.exact) == (True, True)
    last = read_newest(tmp_path, on_skip=pytest.fail).arrays
    tables = [name for name in first if "/rows/" in name]
    assert len(tables) == 4
    for name in tables:
        own = name.replace("/rows/", "/weights/")
        kept = np.searchsorted(last[name], first[name])
        np.testing.assert_array_equal(last[own][kept], first[own], err_msg=own)
