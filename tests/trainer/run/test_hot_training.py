"""Runs with hot rows beside parameter servers: the bits of runs with all rows on them, for each optimizer, and after each stop."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from tests.support.parameter_servers import thread_servers
from tests.trainer.run.test_loop import equal_arrays, saved
from tests.trainer.run.test_served_loop import on_servers
from tests.trainer.synthetic import Synthetic, config
from trainer.errors import ConfigError
from trainer.options.config import EMBEDDING_OPTIMIZERS, TrainConfig
from trainer.run.loop import train

NUMBERS = count(1)
HOT = {"words": 20, "user": 7}


@pytest.fixture(scope="module")
def servers():
    with thread_servers(2) as made:
        yield made


def trained(data, servers, folder, **options):
    """The report of one run on the servers."""
    return train(data.solution, data.read, config(folder, **options), make_engine=on_servers(servers, next(NUMBERS)))


def assert_same_bits(one, other) -> None:
    first, second = saved(one), saved(other)
    assert equal_arrays(first, second)
    for name, array in first.arrays.items():
        assert array.tobytes() == second.arrays[name].tobytes(), name


@pytest.mark.medium
@pytest.mark.parametrize(
    "optimizer", ["adagrad", *(pytest.param(one, marks=pytest.mark.slow) for one in EMBEDDING_OPTIMIZERS[1:])]
)
def test_hot_rows_change_no_bit_of_any_optimizer(servers, tmp_path, optimizer):
    options = {"embedding_optimizer": optimizer, "linear": True, "embedding_weight_decay": 0.01, "admit_after": 2}
    data = Synthetic(2, 200)
    plain = trained(data, servers, tmp_path / "plain", **options)
    hot = trained(data, servers, tmp_path / "hot", hot_rows=HOT, **options)
    assert_same_bits(tmp_path / "hot", tmp_path / "plain")
    assert plain.hot is None
    assert hot.hot.hits > 0.3 * hot.hot.lookups
    assert hot.hot.rows_in > 50
    assert hot.hot.rows_out > 0
    assert hot.to_document()["hot"]["hits"] == hot.hot.hits


@pytest.mark.parametrize(
    "options",
    [
        {"staleness": 3, "hot_rows": 0.2},
        {"passes": 3, "held_out_share": 0.3},
        {"linear": True, "deep": False},
        {"tables": {"words": "one", "user": "other"}, "hot_rows": {"one": 9}},
        {"hot_rows": 30},
        {"hot_rows": "auto"},
        {"sequences": {"words": {"length": 2, "encoder": "mean"}}},
    ],
    ids=str,
)
@pytest.mark.slow
def test_hot_rows_change_no_bit_with_other_options(servers, tmp_path, options):
    data = Synthetic(3, 150)
    trained(data, servers, tmp_path / "plain", **{**options, "hot_rows": None})
    hot = trained(data, servers, tmp_path / "hot", **{"hot_rows": HOT, **options})
    assert hot.hot.hits > 0
    assert_same_bits(tmp_path / "hot", tmp_path / "plain")


@pytest.mark.slow
def test_a_run_goes_on_from_each_stop_with_and_without_hot_rows(servers, tmp_path):
    """With all rows on servers, some of them here, and all of them in this process: which are hot is in no checkpoint."""
    data, options = Synthetic(6, 120), {"linear": True}
    train(data.solution, data.read, config(tmp_path / "alone", **options))
    for hot_rows in (HOT, None, 0.3, "alone", 40, "auto"):
        run = config(tmp_path / "run", **options, hot_rows=None if hot_rows == "alone" else hot_rows)
        engine = None if hot_rows == "alone" else on_servers(servers, next(NUMBERS))
        report = train(data.solution, data.read, run, stop=lambda: True, make_engine=engine)
    assert report.finished
    assert_same_bits(tmp_path / "run", tmp_path / "alone")


@pytest.mark.medium
def test_figures_say_what_all_rows_on_the_servers_would_have_sent(servers, tmp_path):
    data = Synthetic(3, 300)
    bytes_of = {}
    for name, hot_rows in (("all", {"words": 0, "user": 0}), ("hot", {"words": 120, "user": 60})):
        bytes_of[name] = trained(data, servers, tmp_path / name, hot_rows=hot_rows, dim=16).hot
    everything, hot = bytes_of["all"], bytes_of["hot"]
    assert (everything.hits, everything.rows_in, everything.spared_bytes, everything.memory_bytes) == (0, 0, 0, 0)
    assert everything.wire_ratio == 1.0
    assert hot.memory_bytes == (120 + 60) * (4 * (16 + 16) + 1)
    assert hot.hit_share > 0.5
    assert hot.wire_ratio == pytest.approx(hot.wire_bytes / everything.wire_bytes, rel=0.1)


def test_hot_rows_of_no_table_are_refused(servers, tmp_path):
    with pytest.raises(ConfigError, match="hot_rows must name tables of the model"):
        trained(Synthetic(1), servers, tmp_path, hot_rows={"word": 3})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "hot rows must be those of tables on parameter servers"),
        ({"pruning": {}}, "pruned tables or hot rows"),
        ({"hashed": {"user": {"capacity": 5}}}, "hashed tables or hot rows"),
    ],
)
def test_hot_rows_are_refused_where_they_cannot_be(servers, tmp_path, options, problem):
    data = Synthetic(1)
    engine = on_servers(servers, next(NUMBERS)) if options else None
    with pytest.raises(ConfigError, match=problem):
        train(data.solution, data.read, config(tmp_path, hot_rows=3, **options), make_engine=engine)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (0, r"hot_rows must be an integer in \[1, "),
        (-3, r"hot_rows must be an integer in \[1, "),
        (True, 'hot_rows must be "auto", a whole number'),
        (1.0, 'hot_rows must be "auto", a whole number'),
        (0.0, 'hot_rows must be "auto", a whole number'),
        (float("nan"), 'hot_rows must be "auto", a whole number'),
        ("all", 'hot_rows must be "auto", a whole number'),
        ([3], 'hot_rows must be "auto", a whole number'),
        ({"a": -1}, r"hot_rows\['a'\] must be an integer in \[0, "),
        ({"a": 2**31}, r"hot_rows\['a'\] must be an integer"),
        ({"": 1}, "hot_rows must be the name of a table"),
        ({"tables": [{"name": "a"}]}, r"hot_rows.tables\[0\] must be an object with name and hot_rows"),
        ({"tables": [{"name": "a", "hot_rows": 1}] * 2}, r"hot_rows.tables\[1\].name must be another name"),
        ({"tables": [{"name": "a", "hot_rows": 1.5}]}, r"hot_rows.tables\[0\].hot_rows must be an integer"),
    ],
)
def test_bad_options_are_refused(option, problem):
    with pytest.raises(ConfigError, match=problem):
        TrainConfig("run", hot_rows=option)


def test_the_option_is_not_part_of_a_run():
    """It changes no bit, so a run may go on with another one; and what is read is read again."""
    for option in ("auto", 5, 0.25, {"b": 1, "a": 0}, {"tables": [{"name": "a", "hot_rows": 4, "rows": 9}]}):
        found = TrainConfig("run", hot_rows=option)
        assert "hot_rows" not in found.to_document()
        assert TrainConfig("run", hot_rows=found.hot_rows.to_document()).hot_rows == found.hot_rows
    assert np.array_equal(list(TrainConfig("run", hot_rows={"b": 1, "a": 0}).hot_rows.by_table), ["a", "b"])
