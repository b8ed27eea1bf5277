"""Training with tables on parameter servers in threads; bits are compared by the slow tests, in processes of their own."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.synthetic import TYPES, Synthetic, config
from trainer.errors import ConfigError
from trainer.servers.run_servers import RunServers
from trainer.training.loop import train


def on_servers(servers, run: int):
    found = RunServers(tuple(one.address for one in servers), run=run)
    return partial(found.engine, 1)


def losses_of(report) -> list[float]:
    return [one.scores.log_loss for one in report.history]


def test_each_run_on_the_same_servers_trains_as_one_without_servers(tmp_path):
    data = Synthetic(2)
    alone = losses_of(train(data.solution, data.read, config(tmp_path / "alone")))
    with thread_servers(2) as servers:
        for run in (1, 2):
            report = train(data.solution, data.read, config(tmp_path / str(run)), make_engine=on_servers(servers, run))
            assert losses_of(report) == pytest.approx(alone, rel=1e-6), "each begins with initial rows"


def test_a_model_without_ids_is_refused(tmp_path):
    data = Synthetic(1, types={name: TYPES[name] for name in ("price", "mobile")})
    with thread_servers(1) as servers, pytest.raises(ConfigError, match="on servers must have embedding tables"):
        train(data.solution, data.read, config(tmp_path), make_engine=on_servers(servers, 1))
