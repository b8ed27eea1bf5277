"""The translation of plans of TorchRec's planner; ``torchrec_plans/`` has answers that it gave for :data:`TABLES` on 16 cores."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.partition_plans import by_size
from benchmarks.planners import (
    answer_file,
    ask_torchrec,
    compare,
    kept_answer,
    request_of,
    row_of,
    sent_plan,
    summary_of,
    torchrec_estimate,
)
from benchmarks.support.fbgemm_environment import FOLDER
from benchmarks.support.torchrec_plan import read_answer, read_millis, sharding_of, with_rows_spread
from tests.support.processes import PATIENCE_SECS
from trainer.errors import ConfigError
from trainer.planning.loads import loads_of
from trainer.planning.plan import Slice, TablePlan, cyclic_plan
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.planning.topologies import PlanTopology, topology_of

CORES = 16
RECORDED = Path(__file__).with_name("torchrec_plans")
PYTHON = FOLDER / "bin" / "python"


def _table(name: str, rows: int, columns: int, ids: float) -> TableFacts:
    load = FeatureLoad(name, ids, RowFrequencies.power_law(rows, 1.05))
    return TableFacts(name, rows, columns, 1, 0, "adagrad", (load,))


TABLES = [
    _table("country", 250, 16, 1.0),
    _table("wide", 200_001, 256, 2.0),
    _table("large", 3_000_001, 64, 40.0),
    _table("plain", 50_000, 32, 1.0),
    _table("other", 40_000, 32, 3.0),
]
#: The recorded answers: the memory of a core in MiB, and the events of a core.
CASES = {"little_memory.json": (120, 64), "more_memory.json": (200, 512)}


def _topology(memory_mib: int) -> PlanTopology:
    return topology_of(f"gpu:{CORES}", memory_bytes=memory_mib << 20)


def _document(name: str) -> dict:
    return json.loads((RECORDED / name).read_bytes())


def _read(document: object):
    return read_answer(json.dumps(document).encode(), "answer", TABLES, CORES)


def test_recorded_plans_have_their_shards():
    plan = _read(_document("more_memory.json")).blocks
    assert plan.of_table("plain").partition == "table"
    first, second = plan.of_table("wide").slices
    assert (first.first_column, first.columns, second.first_column, second.columns) == (0, 128, 128, 128)
    assert len(first.cores) == len(second.cores) == 1
    [rows] = plan.of_table("large").slices
    assert rows.cores == tuple(range(8))
    assert rows.row_ends[:2] == (375_001, 750_002)
    assert rows.row_ends[-1] == 3_000_001
    answer = _read(_document("little_memory.json"))
    assert answer.blocks.of_table("country").is_replicated
    assert len(answer.blocks.of_table("large").slices[0].cores) == CORES
    assert answer.shardings == ("data_parallel", "row_wise", "row_wise", "table_row_wise", "table_row_wise")


@pytest.mark.parametrize("name", CASES)
def test_all_shards_are_translated(name):
    document = _document(name)
    answer = _read(document)
    for stated in document["tables"]:
        planned = answer.blocks.of_table(stated["name"])
        if stated["sharding"] == "data_parallel":
            assert planned.is_replicated
            continue
        found = {
            (one.first_column, one.columns, end - one.rows_of(place, planned.rows), end, core)
            for one in planned.slices
            for place, (end, core) in enumerate(zip(one.row_ends, one.cores, strict=True))
        }
        assert found == {
            (one["first_column"], one["columns"], one["first_row"], one["first_row"] + one["rows"], one["core"])
            for one in stated["shards"]
            if one["rows"]
        }


def test_spread_rows_are_on_the_cores_of_the_blocks_and_cost_no_more():
    blocks = _read(_document("little_memory.json")).blocks
    spread = with_rows_spread(blocks)
    assert [[one.cores for one in table.slices] for table in spread.tables] == [
        [one.cores for one in table.slices] for table in blocks.tables
    ]
    assert not any(one.row_ends for table in spread.tables for one in table.slices)
    memory, events = CASES["little_memory.json"]
    secs = [loads_of(plan, TABLES, _topology(memory), events * CORES).step_secs for plan in (spread, blocks)]
    assert secs[0] < secs[1]  # row 0 is the most frequent one, and the first block has all frequent rows


def test_a_grid_of_rows_and_columns_is_translated_and_empty_shards_are_left_out():
    table = _table("grid", 10, 16, 1.0)
    shards = [
        {"first_row": row, "rows": rows, "first_column": column, "columns": 8, "core": core}
        for core, (column, row, rows) in enumerate([(8, 4, 4), (0, 0, 4), (0, 4, 4), (0, 8, 2), (8, 0, 4), (8, 8, 2), (8, 10, 0)])
    ]  # fmt: skip
    document = {"tables": [{"name": "grid", "sharding": "grid_shard", "shards": shards}], "secs": 0.1}
    plan = read_answer(json.dumps(document).encode(), "answer", [table], 7).blocks
    assert plan.of_table("grid").slices == (Slice(0, 8, (1, 2, 3), (4, 8, 10)), Slice(8, 8, (4, 0, 5), (4, 8, 10)))


def test_a_refusal_has_no_plan():
    answer = _read({"refused": "no space", "secs": 2.0})
    assert (answer.blocks, answer.refused, answer.secs) == (None, "no space", 2.0)


def _changed(change) -> dict:
    document = copy.deepcopy(_document("more_memory.json"))
    change(document)
    return document


def _wide(document: dict) -> list:
    return next(one["shards"] for one in document["tables"] if one["name"] == "wide")


HOSTILE = {
    "a table is missing": lambda document: document["tables"].pop(),
    "a table is there twice": lambda document: document["tables"].append(document["tables"][0]),
    "a table is unknown": lambda document: document["tables"][0].update(name="unknown"),
    "a sharding is unknown": lambda document: document["tables"][0].update(sharding="by_moon"),
    "a copy has shards": lambda document: document["tables"][0].update(sharding="data_parallel"),
    "no shards": lambda document: document["tables"][0].update(shards=[]),
    "only empty shards": lambda document: [one.update(rows=0) for one in document["tables"][0]["shards"]],
    "columns are missing": lambda document: _wide(document).pop(),
    "columns overlap": lambda document: _wide(document)[1].update(first_column=120),
    "rows are missing": lambda document: _wide(document)[0].update(rows=200_000),
    "rows are too many": lambda document: _wide(document)[0].update(rows=200_002),
    "rows do not begin": lambda document: _wide(document)[0].update(first_row=1),
    "a core is unknown": lambda document: _wide(document)[0].update(core=CORES),
    "a core is negative": lambda document: _wide(document)[0].update(core=-1),
    "a row is a text": lambda document: _wide(document)[0].update(first_row="0"),
    "a row is a boolean": lambda document: _wide(document)[0].update(first_row=False),
    "a member is missing": lambda document: _wide(document)[0].pop("columns"),
    "shards are no list": lambda document: document["tables"][0].update(shards={}),
    "tables are no list": lambda document: document.update(tables=3),
    "seconds are missing": lambda document: document.pop("secs"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_another_document_is_refused(change):
    with pytest.raises(ConfigError, match="answer") as refused:
        _read(_changed(change))
    assert refused.value.where.startswith("answer")
    assert refused.value.next_step


@pytest.mark.parametrize("data", [b"", b"[", b"\xff", b"[" * 100_000, b"null", b"[]", b'"text"', b'{"secs": NaN}'])
def test_other_bytes_are_refused(data):
    with pytest.raises(ConfigError) as refused:
        read_answer(data, "answer", TABLES, CORES)
    assert refused.value.where.startswith("answer")


def test_partitions_have_the_shardings_that_torchrec_has_for_them():
    def sharding(*slices: tuple[int, ...]) -> str:
        parts = tuple(Slice(8 * k, 8, cores) for k, cores in enumerate(slices))
        return sharding_of(TablePlan("table", 100, 8 * len(parts), parts), 16, 8)

    assert sharding((3,)) == "table_wise"
    assert sharding(tuple(range(16))) == "row_wise"
    assert sharding(tuple(range(8, 16))) == "table_row_wise"
    assert [sharding(tuple(range(4, 12))), sharding((0, 1)), sharding((0,), (1,))] == ["", "", ""]
    copies = TablePlan("table", 100, 8, (Slice(0, 8, tuple(range(16))),), is_replicated=True)
    assert sharding_of(copies, 16, 8) == "data_parallel"


@pytest.mark.parametrize("name", CASES)
def test_plans_of_torchrec_have_their_own_shardings(name):
    answer = _read(_document(name))
    for table, sharding in zip(answer.blocks.tables, answer.shardings, strict=True):
        assert sharding_of(table, CORES, 8) in (sharding, "")


@pytest.mark.slow
def test_estimates_are_of_plans_that_torchrec_can_state():
    topology, events = _topology(200), 512
    request = request_of(TABLES, topology, events, 60)
    recorded = (RECORDED / "more_memory.json").read_bytes()
    compared = compare(TABLES, topology, request, lambda _: recorded)
    asked: list[dict] = []

    def ask(one: dict) -> bytes:
        asked.append(one)
        return b'{"millis": [2.0, 3.0]}'

    blocks = replace(compared, planned=replace(compared.planned, plan=compared.answer.blocks))
    assert torchrec_estimate(blocks, request, ask) == "4 of 5"  # it cuts columns at places of its own
    whole = cyclic_plan([(one.name, one.rows, one.columns) for one in TABLES], CORES)
    assert torchrec_estimate(replace(compared, planned=replace(compared.planned, plan=whole)), request, ask) == "1.50x"
    [one] = asked
    assert [table["sharding"] for table in one["plans"][0]] == ["row_wise"] * 5
    assert [len(table["cores"]) for table in one["plans"][1]] == [1, 2, 8, 1, 1]


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"millis": [1]}', b'{"millis": [1, 0]}', b'{"millis": [1, "2"]}', b'{"millis": [1, NaN]}']
)
def test_other_estimates_are_refused(data):
    with pytest.raises(ConfigError, match="estimate"):
        read_millis(data, "answer", 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), CASES.items())
def test_no_other_plan_has_a_shorter_step(name, case, tmp_path):
    """The comparison of the benchmark, with the recorded answers."""
    memory, events = case
    topology = _topology(memory)
    request = request_of(TABLES, topology, events, 60)
    answer_file(tmp_path, request).write_bytes((RECORDED / name).read_bytes())
    compared = compare(TABLES, topology, request, lambda asked: kept_answer(asked, Path("no python"), 1.0, tmp_path))
    assert all(ratio is not None and ratio >= 1 for ratio in compared.ratios())
    assert compared.by_size.step_secs == loads_of(by_size(TABLES, topology), TABLES, topology, events * CORES).step_secs
    assert row_of("set", compared, "5 of 5").startswith("set")
    assert summary_of("gpu:16", [compared]).count("shorter than ours in 0 of 1") == 3


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="TorchRec is missing: make bench-fbgemm installs it in .fbgemm")
@pytest.mark.parametrize(("name", "case"), CASES.items())
def test_torchrec_answers_as_recorded(name, case):
    memory, events = case
    request = request_of(TABLES, _topology(memory), events, int(PATIENCE_SECS))
    answer = json.loads(ask_torchrec(request, PYTHON, PATIENCE_SECS))
    assert answer["tables"] == _document(name)["tables"]


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="TorchRec is missing: make bench-fbgemm installs it in .fbgemm")
def test_torchrec_says_why_it_has_no_plan():
    request = request_of(TABLES, _topology(1), 64, int(PATIENCE_SECS))
    answer = _read(json.loads(ask_torchrec(request, PYTHON, PATIENCE_SECS)))
    assert answer.blocks is None
    assert answer.refused


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="TorchRec is missing: make bench-fbgemm installs it in .fbgemm")
def test_torchrec_estimates_plans():
    answers = [_read(_document(name)) for name in CASES]
    memory, events = CASES["more_memory.json"]
    request = request_of(TABLES, _topology(memory), events, 60)
    plans = [sent_plan(one.blocks, one.shardings) for one in answers]
    found = read_millis(ask_torchrec({**request, "plans": plans}, PYTHON, PATIENCE_SECS), "answer", 2)
    assert found[1] < found[0]  # it found the second one for this request
